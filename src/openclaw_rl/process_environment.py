"""What our processes find in their environment: how PyTorch's threads wait, and how many heaps glibc keeps.

OpenMP and glibc read it when they are loaded, so it is set before PyTorch is imported and for children. What
the user has set stays. Imports the standard library alone.
"""

from __future__ import annotations

import os

# Threads sleep at barriers. Spinning ones are faster while nothing else runs, and several times slower as
# soon as an agent's own programs want a core: the thread that is waited for does not get one.
_WAITS = {"OMP_WAIT_POLICY": "PASSIVE"}
_WAITS_CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# glibc gives threads heaps of their own, and each grows to what its thread once needed.
_HEAPS = {"MALLOC_ARENA_MAX": "2"}


def ours() -> dict[str, str]:
    """The environment of a process of ours."""
    chosen = any(name in os.environ for name in _WAITS_CHOSEN_BY)
    return {**_HEAPS, **({} if chosen else _WAITS), **os.environ}


def others() -> dict[str, str]:
    """The environment of a program that is to run as it would without us."""
    set_here = _HEAPS | _WAITS
    return {name: value for name, value in os.environ.items() if set_here.get(name) != value}


def enter() -> None:
    """Make it this process's own, for what is loaded from now on."""
    os.environ.update(ours())
