"""One process of a kind for each data folder: a second server or learner is refused in one line.

The lock is the operating system's and goes with its holder, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunningError(RuntimeError):
    """Another process of this kind works on the same data folder."""


@contextmanager
def only_one(home: Path, name: str) -> Iterator[None]:
    """Hold the lock called `name` in the data folder. Raises AlreadyRunningError."""
    home.mkdir(parents=True, exist_ok=True)
    handle = os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise AlreadyRunningError(
            f"another {name} already runs on {home}; stop it, or choose another --data-dir"
        ) from None
    try:
        yield
    finally:
        os.close(handle)
