"""What the server recorded while it streamed is what its version computes: time to first token, log-probs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from openai import OpenAI
from recorded_log_probs import differences
from running_processes import House

from openclaw_rl.config import EMBEDDED_MODEL
from openclaw_rl.model import Turn
from openclaw_rl.policy.embedded.model_files import resolve

LONG_REPLY = 60

DTYPES = [
    pytest.param("float32", 1e-3, id="float32"),
    # Rounding of bfloat16 depends on how many tokens are computed together: one, or the whole reply. Logits
    # from 16 on lie 0.125 apart, so that two that hardly differ may be rounded away from each other.
    pytest.param("bfloat16", 0.25, id="bfloat16"),
]
"""Bounds of the largest difference, before the division by the temperature; the mean is a quarter of it."""


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_a_stream_begins_early_and_its_log_probs_are_those_of_a_forward_pass(
    house: House, dtype: str, tolerance: float
) -> None:
    _check(house, house.model_folder, "tiny", dtype, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_the_same_of_the_embedded_model(house: House, dtype: str, tolerance: float) -> None:
    house.model_folder = resolve(EMBEDDED_MODEL, print)
    _check(house, house.model_folder, EMBEDDED_MODEL, dtype, tolerance)


def _check(house: House, folder: Path, model: str, dtype: str, tolerance: float) -> None:
    house.start("serve", f"model.dtype={dtype}")
    house.wait_until_ready()
    turn, first, whole = _long_reply(house, model)
    apart = differences(turn, folder, getattr(torch, dtype)) * turn.sampling.temperature
    worst, mean = apart.max().item(), apart.mean().item()
    print(
        f"{model} {dtype}: first token after {first:.3f} s of {whole:.3f} s, {worst:.6f} at most, {mean:.6f}"
    )
    assert first < whole / 3
    assert worst < tolerance
    assert mean < tolerance / 4


def _long_reply(house: House, model: str) -> tuple[Turn, float, float]:
    """A streamed reply of many tokens: its turn, and seconds to the first text and to the end."""
    with OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0) as client:
        for seed in range(20):
            started = time.monotonic()
            first = 0.0
            stream = client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": "Tell me all about the sea."}],
                max_tokens=200,
                temperature=0.7,
                seed=seed,
                stream=True,
            )
            for chunk in stream:
                if not first and chunk.choices and chunk.choices[0].delta.content:
                    first = time.monotonic() - started
            turn = house.store.conversations.turn(chunk.id.removeprefix("chatcmpl-"))
            assert turn is not None
            if len(turn.response_ids) >= LONG_REPLY:
                return turn, first, time.monotonic() - started
    raise AssertionError("no seed gave a long reply")
