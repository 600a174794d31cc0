"""The bench of the step: its arithmetic, and what it says of memory."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from openclaw_rl.evals.update_bench.bench import summary
from openclaw_rl.evals.update_bench.memory import forget_peak, now_bytes, peak_bytes

MB = 2**20


def printed(seconds: list[float], peak_mb: float, **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "peak_bytes": peak_mb * MB, **more}


def ours(seconds: list[float], peak_mb: float, limit: float) -> dict[str, Any]:
    parts = [{"forward": value / 4, "backward": value / 2} for value in seconds]
    return printed(seconds, peak_mb, parts=parts, loaded_bytes=100 * MB, limit_seconds=[9.0, limit, limit])


def test_ratios_are_of_medians_and_the_first_step_does_not_count() -> None:
    found = {
        "binary": [ours([50.0, 2.0, 4.0], 300, 1.0), ours([70.0, 4.0, 100.0], 280, 1.0)],
        "hybrid": [ours([60.0, 6.0, 6.0], 310, 1.0)],
        "trl": [
            printed([90.0, 8.0, 8.0], 1200, version="1.2"),
            printed([1.0, 8.0, 9.0], 1100, version="1.2"),
        ],
    }
    result = summary(found)
    assert result["ratios"] == {"of_matmul_limit": 4.0, "vs_trl": 2.0, "memory_vs_trl": 0.25}
    assert result["contenders"]["binary"]["seconds"] == 4.0
    assert result["contenders"]["binary"]["peak_mb"] == 300
    assert result["contenders"]["hybrid"]["parts"] == {"forward": 1.5, "backward": 3.0}
    assert result["contenders"]["trl"]["version"] == "1.2"


def test_without_a_rival_nothing_is_said_of_one() -> None:
    result = summary({"binary": [ours([9.0, 3.0, 3.0], 1, 1.5)], "hybrid": [ours([9.0, 3.0, 3.0], 1, 1.5)]})
    assert result["ratios"] == {"of_matmul_limit": 2.0}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is the whole process's")
def test_the_peak_is_what_was_held_since_it_was_forgotten() -> None:
    before = bytearray(os.urandom(1)) * (200 * MB)
    del before
    forget_peak()
    start = now_bytes()
    assert peak_bytes() < start + 50 * MB
    held = bytearray(os.urandom(1)) * (100 * MB)
    assert start + 90 * MB < peak_bytes() < start + 150 * MB
    assert len(held) == 100 * MB
