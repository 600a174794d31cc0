"""Old policy versions make room: their files go, their record stays.

A version takes as much disk as its adapter and optimiser state (57 MB for the embedded model), and one is
made every few minutes. Knows no weights.
"""

from __future__ import annotations

import logging
import shutil

from openclaw_rl.model import VersionState
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


def delete_old(store: Store, keep: int) -> None:
    """Delete the files of all but the newest `keep` versions, never of one that serves or is newer."""
    serving = store.learning.serving_version()
    for version in store.learning.versions()[keep:]:
        if version.path is None or version.state is VersionState.DELETED:
            continue
        if serving is None or version.number >= serving.number:
            continue  # it may be on its way to the engine
        try:
            shutil.rmtree(version.path)
        except FileNotFoundError:
            pass  # deleted before its record could say so, or by the owner
        except OSError as error:
            log.warning("version %d could not be deleted: %s", version.number, error)
            continue
        store.learning.mark_deleted(version.number)
