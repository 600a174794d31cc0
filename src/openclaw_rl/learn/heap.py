"""Memory that an update needed goes back to the system when it is over.

glibc keeps what was freed for the next allocation, so a learner that rests for an hour would hold gigabytes
of a step's activations. Does nothing where the C library is another.
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return every freed page. A few milliseconds, and as many page faults in the next update."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
