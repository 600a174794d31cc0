"""Old policy versions make room: their files go, their record stays.

A version takes as much disk as its adapter and optimiser state (57 MB for the embedded model), and one is
made every few minutes. Knows no weights.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from openclaw_rl.model import VersionState
from openclaw_rl.store import Store

FAILED = (VersionState.REJECTED, VersionState.ROLLED_BACK, VersionState.DELETED)
"""Not worth going back to."""

log = logging.getLogger(__name__)


def delete_old(store: Store, folder: Path, keep: int) -> None:
    """Delete the files of all but the newest `keep` good versions, never of one that serves or is newer.

    Only what lies in `folder`, where this store's versions are, is deleted.
    """
    versions = store.learning.versions()
    serving = store.learning.serving_version()
    good = [version.number for version in versions if version.state not in FAILED]
    for version in versions:
        if version.path is None or version.state is VersionState.DELETED or version.number in good[:keep]:
            continue
        if serving is None or version.number >= serving.number:
            continue  # it may be on its way to the engine
        files = folder.parent / version.path
        if files.parent != folder:
            continue  # of the folder that this one was copied from
        try:
            shutil.rmtree(files)
        except FileNotFoundError:
            pass  # deleted before its record could say so, or by the owner
        except OSError as error:
            log.warning("version %d could not be deleted: %s", version.number, error)
            continue
        store.learning.mark_deleted(version.number)
