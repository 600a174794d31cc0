"""What keys and values occupy: as much as their tokens take, however many requests came and went."""

from __future__ import annotations

import random
import sys
import threading

import pytest
import torch

from openclaw_rl.evals.update_bench.memory import now_bytes
from openclaw_rl.policy.embedded.arena import Arena, Span
from openclaw_rl.policy.embedded.prefix_cache import PrefixCache

LAYERS, HEADS, WIDTH = 12, 3, 64
BYTES_A_TOKEN = LAYERS * 2 * HEADS * WIDTH * 4
MB = 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the most ever is known")


def fill(arena: Arena, row: int, tokens: int) -> None:
    key = torch.ones(HEADS, tokens, WIDTH)
    for layer in range(LAYERS):
        arena.write(layer, [Span(row, 0, tokens)], key, key)


def test_prefixes_that_come_and_go_leave_nothing_behind() -> None:
    budget = 4096
    occupied: list[int] = []

    def serve() -> None:
        chance, cache = random.Random(0), PrefixCache(budget)
        before = now_bytes()
        for _ in range(60):
            arena = Arena(8)
            lengths = [chance.randint(20, 400) for _ in range(chance.randint(1, 6))]
            arena.reserve(max(lengths), len(lengths))
            for row, length in enumerate(lengths):
                fill(arena, row, length)
            for row, length in enumerate(lengths):
                saved = arena.copy_out(row, length)
                assert all(part.eq(1).all() for part in saved.parts())
                cache.add(0, [chance.randrange(1000) for _ in range(length)], saved)
            arena.release()
        occupied.append(now_bytes() - before)
        assert cache.tokens > budget / 2

    # As the engine computes: in a thread, whose malloc has memory of its own.
    serving = threading.Thread(target=serve)
    serving.start()
    serving.join()
    assert occupied[0] < 1.3 * budget * BYTES_A_TOKEN + 8 * MB


def test_rows_occupy_only_what_is_written_to_them() -> None:
    arena, long = Arena(16), 3000
    before = now_bytes()
    arena.reserve(100, 1)
    fill(arena, 0, 100)
    arena.reserve(long, 1)
    fill(arena, 0, long)
    assert now_bytes() - before < 1.3 * long * BYTES_A_TOKEN + 8 * MB
    arena.release()
    assert now_bytes() - before < 16 * MB


def test_what_is_in_use_survives_when_rows_grow() -> None:
    arena = Arena(3)
    arena.reserve(10, 2)
    fill(arena, 1, 10)
    arena.reserve(1000, 3)
    keys, values, *_ = arena.copy_out(1, 12).parts()
    for part in (keys, values):
        assert part[:, :10].eq(1).all()
        assert part[:, 10:].eq(0).all()
