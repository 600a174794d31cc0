"""A data folder belongs to one model: what one has learned fits no other.

Without this check a start with another model would load each learned version, fail, and reject it for good.
"""

from __future__ import annotations

import json

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.learn.checkpoint import MANIFEST_FILE
from openclaw_rl.store import Store


def refuse_other_model(store: Store, settings: Settings) -> None:
    """Raise ConfigError when the newest learned version is of another model than the one to be served."""
    learned = next((version for version in store.learning.versions() if version.path), None)
    if learned is None or learned.path is None:
        return
    try:
        model = json.loads((settings.home / learned.path / MANIFEST_FILE).read_text(encoding="utf-8"))[
            "model"
        ]
    except (OSError, ValueError, KeyError):
        return  # damaged or gone: whoever loads it says so
    if model != settings.served_name:
        raise ConfigError(
            f"{settings.home} holds what {model} has learned; choose another --data-dir for "
            f"{settings.served_name}"
        )
