"""Which answers to the probes no healthy model gives."""

from __future__ import annotations

import math

import pytest

from openclaw_rl.policy.self_test import PROBES, fault, probes

GOOD = ((5, -0.5), (7, -1.5), (9, -3.0))


def _with(answer: tuple[tuple[int, float], ...]) -> list[tuple[tuple[int, float], ...]]:
    return [*[GOOD] * (PROBES - 1), answer]


def test_the_log_probs_of_a_distribution_pass() -> None:
    assert fault([GOOD] * PROBES, 300) == ""
    assert fault([((1, -math.log(4)), (2, -math.log(4)))] * PROBES, 4) == ""
    assert fault([((1, 0.0), (2, -90.0))] * PROBES, 300) == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((), "answered 7 of 8"),
        (((5, math.nan), (7, -1.0)), "not finite"),
        (((5, -1.0), (7, -math.inf)), "not finite"),
        (((5, 0.2), (7, -1.0)), "no distribution"),
        (((5, 9e9), (7, -1.0)), "no distribution"),
        (((5, -0.3), (7, -0.4)), "no distribution"),
        (((5, -8.0), (7, -9.0)), "no distribution"),
    ],
)
def test_what_no_model_answers_is_told(answer: tuple[tuple[int, float], ...], why: str) -> None:
    assert why in fault(_with(answer), 300)


def test_probes_are_eight_different_prompts_of_known_tokens() -> None:
    asked = probes(300)
    assert len(set(asked)) == PROBES
    assert all(0 <= token_id < 300 for each in asked for token_id in each)
    assert asked == probes(300)
