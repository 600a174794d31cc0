"""One process of a kind for each data folder: a second server or learner is refused in one line.

The lock is the operating system's and goes with its holder, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GLANCE_SECONDS = 0.5
"""Who only asks whether a lock is held has it for a moment: whoever wants it tries for so long."""


class AlreadyRunningError(RuntimeError):
    """Another process of this kind works on the same data folder."""


@contextmanager
def only_one(home: Path, name: str) -> Iterator[None]:
    """Hold the lock called `name` in the data folder. Raises AlreadyRunningError."""
    home.mkdir(parents=True, exist_ok=True)
    handle = os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + GLANCE_SECONDS
        while not _take(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise AlreadyRunningError(
                    f"another {name} already runs on {home}; stop it, or choose another --data-dir"
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def is_held(home: Path, name: str) -> bool:
    """Whether a process holds the lock called `name` in the data folder. Makes nothing."""
    try:
        handle = os.open(home / f"{name}.lock", os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _take(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _take(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
