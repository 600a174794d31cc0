"""What our processes find in their environment: how PyTorch's threads wait, and how many heaps glibc keeps.

OpenMP and glibc read it when they are loaded, so it is set before PyTorch is imported and for children. What
the user has set stays. Imports the standard library alone.
"""

from __future__ import annotations

import os

_WAITS = {
    # Of GNU's OpenMP, which PyTorch brings on Linux: about 4 ms, its own default. The next operation of a
    # decode step comes within that, and waking a thread that sleeps takes as long as many of them. Threads
    # that spin for much longer take the cores from other processes.
    "GOMP_SPINCOUNT": "300000",
    # Of LLVM's and Intel's, in milliseconds.
    "KMP_BLOCKTIME": "4",
}
_HEAPS = {
    # glibc gives threads heaps of their own, and each grows to what its thread once needed.
    "MALLOC_ARENA_MAX": "2",
}


def ours() -> dict[str, str]:
    """The environment of a process of ours."""
    chosen = _HEAPS if "OMP_WAIT_POLICY" in os.environ else _HEAPS | _WAITS
    return {**chosen, **os.environ}


def others() -> dict[str, str]:
    """The environment of a program that is to run as it would without us."""
    chosen = _HEAPS | _WAITS
    return {name: value for name, value in os.environ.items() if chosen.get(name) != value}


def enter() -> None:
    """Make it this process's own, for what is loaded from now on."""
    os.environ.update(ours())
