"""The sequence ratio against the formula, and which samples it leaves behind."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from objective_formulas import mean_log_ratios
from token_batches import Batch, batches, double, log_probs

from openclaw_rl.learn.objectives.drift import drifted, sequence_log_ratio

Token = tuple[float, float]
"""The log-probs of the policy now and when it sampled."""

tokens = batches(st.tuples(log_probs, log_probs))


def columns(batch: Batch[Token]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return double(batch.column(0)), double(batch.column(1)), torch.tensor(batch.owners)


@given(tokens)
def test_the_measure_is_the_mean_log_ratio_of_the_sample(batch: Batch[Token]) -> None:
    expected = mean_log_ratios(batch.column(0), batch.column(1), batch.owners)
    assert sequence_log_ratio(*columns(batch)).tolist() == pytest.approx(expected, abs=1e-11)


@given(tokens, st.floats(1.001, 1000))
def test_too_likely_and_too_unlikely_samples_are_left_behind_whole(
    batch: Batch[Token], max_ratio: float
) -> None:
    measures = mean_log_ratios(batch.column(0), batch.column(1), batch.owners)
    assume(all(abs(abs(measure) - math.log(max_ratio)) > 1e-9 for measure in measures))
    expected = [not 1 / max_ratio <= math.exp(min(700.0, measure)) <= max_ratio for measure in measures]
    assert drifted(*columns(batch), max_ratio=max_ratio).tolist() == expected


@given(tokens, st.integers(0, 4))
def test_passes_decide_as_the_batch_does(batch: Batch[Token], cut: int) -> None:
    whole = drifted(*columns(batch), max_ratio=2.0).tolist()
    assert whole == [left for p in batch.passes(cut) for left in drifted(*columns(p), max_ratio=2.0).tolist()]


def test_samples_may_be_numbered_with_gaps() -> None:
    found = drifted(
        double([-1.0, -3.0, -1.0]), double([-1.0, -1.0, -1.0]), torch.tensor([7, 2, 7]), max_ratio=2
    )
    assert found.tolist() == [False, True, False]


def test_tokens_that_drifted_apart_may_even_out() -> None:
    found = sequence_log_ratio(double([-1.0, -3.0]), double([-2.0, -2.0]), torch.tensor([0, 0]))
    assert found.tolist() == [0.0, 0.0]


def test_the_measure_carries_no_gradient_and_is_finite_in_float32() -> None:
    current = torch.tensor([-300.0, 0.0], requires_grad=True)
    found = sequence_log_ratio(current, torch.tensor([0.0, -300.0]), torch.tensor([0, 1]))
    assert found.tolist() == [-300.0, 300.0]
    assert not found.requires_grad
