"""What an update's memory costs: not a page fault for every tensor, and nothing once it is over.

By itself glibc asks the system for each large tensor anew and gives it back when it is freed, so a step
spends a tenth of its time on pages that it had a moment ago. What it does keep it keeps for good: a learner
that rests would hold gigabytes. Does nothing where the C library is another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3), as in malloc.h."""
_MOST = 2**31 - 1


@contextmanager
def kept_until_done() -> Iterator[None]:
    """Inside, freed memory stays for the next allocation; at the end every freed page goes back."""
    library = ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)  # of glibc alone, like what mallopt is asked for
    if trim is None:
        yield
        return
    # Both stay set afterwards: a learner that waits allocates little.
    library.mallopt(_TRIM_THRESHOLD, _MOST)
    library.mallopt(_MMAP_THRESHOLD, _MOST)
    try:
        yield
    finally:
        trim(0)
