"""A learner that rests holds no more memory than it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKS_FREED_BELOW_ONE_THAT_STAYS = """
import numpy, resource
from openclaw_rl.learn.heap import kept_until_done

def resident_mb():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 / 2**20

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def large():
    before = faults()
    tensors = [numpy.ones(3_000_000, dtype=numpy.uint8) for _ in range(20)]
    return faults() - before

large()
alone = large()
with kept_until_done():
    blocks = [numpy.ones(100_000, dtype=numpy.uint8) for _ in range(3000)]
    stays = numpy.ones(100_000, dtype=numpy.uint8)
    full = resident_mb()
    blocks.clear()
    freed = resident_mb()
    large()
    inside = large()
print(full - freed, full - resident_mb(), alone, inside)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is nothing to call")
def test_what_an_update_frees_stays_for_its_next_tensor_and_goes_back_in_the_end() -> None:
    command = [sys.executable, "-c", BLOCKS_FREED_BELOW_ONE_THAT_STAYS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_freeing, in_all, faults_alone, faults_inside = map(float, said.split())
    assert by_freeing < 50
    assert in_all > 250
    assert faults_alone > 5_000
    assert faults_inside < 100
