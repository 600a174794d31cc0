"""How many CPU threads this process may use right now.

PyTorch's threads meet at a barrier in every operation, so two processes with a thread on every core
make each other many times slower. The server and the learner therefore share the cores: each takes all
of them while it works alone and half while both work. A lock file held while working tells the other;
the system drops it if its holder dies. Of other programs, `Contention` finds out. Linux and macOS.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from openclaw_rl.policy.embedded.contention import Contention

MOST_THREADS = 16
"""More threads than this cost more at the barriers than they compute, for models that fit a CPU."""

Worker = Literal["server", "learner"]


def available_cores() -> int:
    """Cores that this process may run on: the affinity mask and the container's quota both count."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no affinity
        allowed = os.cpu_count() or 1
    return max(1, min(allowed, _quota(Path("/sys/fs/cgroup/cpu.max")), MOST_THREADS))


def _quota(cpu_max: Path) -> int:
    """A control group's limit in whole cores, rounded up; a large number where there is none."""
    unlimited = 1 << 16
    try:
        quota, period = cpu_max.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return unlimited
    return unlimited if quota == "max" else math.ceil(int(quota) / int(period))


def threads_spin() -> bool:
    """Whether OpenMP's threads wait at barriers with a core in use, as they do unless the user objects."""
    chosen = [os.environ[name] for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME") if name in os.environ]
    return "0" not in chosen if chosen else os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE"


@contextmanager
def without_helpers() -> Iterator[None]:
    """The calling thread computes with no other thread's help.

    A thread keeps the threads that once helped it, and while a process has more of these than cores, GNU's
    OpenMP lets none of them spin at a barrier, whatever the user wants (GOMP_SPINCOUNT). So apart from the
    one thread that computes all the time, nobody may have any.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CoreShare:
    """One worker's part of the machine."""

    def __init__(self, folder: Path, worker: Worker, limit: int = 0) -> None:
        """`folder` holds the lock files; `limit` caps the threads used alone, 0 for no cap."""
        other: Worker = "learner" if worker == "server" else "server"
        cores = available_cores()
        self._alone = min(cores, limit) if limit else cores
        self._shared = max(1, min(self._alone, cores // 2))
        folder.mkdir(parents=True, exist_ok=True)
        self._mine = _open_lock(folder / f"{worker}.working")
        self._theirs = _open_lock(folder / f"{other}.working")
        # The learner's passes take seconds: too long to look at the clocks in between.
        self._contention = Contention() if worker == "server" and threads_spin() else None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Tell the other worker that this one is busy, and take this worker's threads."""
        fcntl.flock(self._mine, fcntl.LOCK_EX)
        try:
            if self._contention:
                self._contention.begin()
            self.adjust()
            yield
            if self._contention:
                self._contention.end()
        finally:
            fcntl.flock(self._mine, fcntl.LOCK_UN)

    def adjust(self) -> None:
        """Set PyTorch's thread count for what others do now. A few microseconds."""
        threads = self._shared if self._other_works() else self._alone
        if self._contention:
            threads = self._contention.threads(threads)
        # Even if it is the same as before: MKL's count is the whole process's, and others set it too.
        torch.set_num_threads(threads)

    def close(self) -> None:
        os.close(self._mine)
        os.close(self._theirs)

    def _other_works(self) -> bool:
        try:
            fcntl.flock(self._theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._theirs, fcntl.LOCK_UN)
        return False


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
