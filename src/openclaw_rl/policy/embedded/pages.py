"""Memory for keys and values, from the system and back to it at once.

malloc keeps what is freed, in pieces between what is not: 720 MB of prefixes that came and went occupied more
than twice as much. Pages of its own cost a tensor nothing until they are written to.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch


def zeros(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Zeros in `like`'s dtype and place; on a CPU their memory is taken as they are written to."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size:
        return like.new_zeros(tuple(shape))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # The tensor holds them, and with its last view they are gone.
    return torch.frombuffer(pages, dtype=like.dtype).view(tuple(shape))
