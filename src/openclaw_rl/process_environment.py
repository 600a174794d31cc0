"""What our processes find in their environment: how many heaps glibc keeps, how OpenMP's threads wait.

Both read it when they are loaded, so it is set before PyTorch is imported and for children; glibc, which
was there before us, is told by a call. What the user has set stays. Imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import os

# glibc gives threads heaps of their own, and each grows to what its thread once needed.
_MOST_HEAPS = 2
_HEAPS = {"MALLOC_ARENA_MAX": str(_MOST_HEAPS)}
_ARENA_MAX = -8
"""Of mallopt(3), as in malloc.h."""
# Threads that spin at barriers are for a process that looks out for other programs in every step. One at low
# priority, with passes of seconds, would not get through a single pass beside another program.
_SLEEPS = {"OMP_WAIT_POLICY": "PASSIVE"}
_WAITS_CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def ours(*, background: bool = False) -> dict[str, str]:
    """The environment of a process of ours; in the `background` is what yields to everybody else."""
    chosen = any(name in os.environ for name in _WAITS_CHOSEN_BY)
    return {**_HEAPS, **(_SLEEPS if background and not chosen else {}), **os.environ}


def others() -> dict[str, str]:
    """The environment of a program that is to run as it would without us."""
    return {name: value for name, value in os.environ.items() if _HEAPS.get(name) != value}


def enter(*, background: bool = False) -> None:
    """Make it this process's own, for what is loaded from now on."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if not _HEAPS.keys() & os.environ.keys() and "glibc.malloc.arena_max" not in tunables:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
        if mallopt is not None:
            mallopt(_ARENA_MAX, _MOST_HEAPS)
    os.environ.update(ours(background=background))
