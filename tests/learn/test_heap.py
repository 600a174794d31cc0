"""A learner that rests holds no more memory than it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

FREED_BELOW_A_BLOCK_THAT_STAYS = """
import numpy
from openclaw_rl.learn.heap import give_back

def resident_mb():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 / 2**20

blocks = [numpy.ones(100_000, dtype=numpy.uint8) for _ in range(3000)]
stays = numpy.ones(100_000, dtype=numpy.uint8)
full = resident_mb()
blocks.clear()
freed = resident_mb()
give_back()
print(full - freed, full - resident_mb())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is nothing to call")
def test_what_an_update_freed_goes_back_to_the_system() -> None:
    command = [sys.executable, "-c", FREED_BELOW_A_BLOCK_THAT_STAYS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_freeing, in_all = map(float, said.split())
    assert by_freeing < 50
    assert in_all > 250
