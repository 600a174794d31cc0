"""PPO's clipped surrogate against the formula written out token by token in float64."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_formulas import Bounds, clipped, over_samples, ratio
from token_batches import Batch, batches, double, log_probs, numbers

from openclaw_rl.learn.objectives.surrogate import Surrogate, clipped_surrogate, sum_of_sample_means

Token = tuple[float, float, float]
"""Current and behaviour log-prob, and advantage."""

PAPER = Bounds()
bounds = st.builds(Bounds, st.floats(0.01, 0.9), st.floats(0.01, 5), st.floats(1.01, 20) | st.just(math.inf))
tokens = batches(st.tuples(log_probs, log_probs, numbers))


def surrogate(
    batch: Batch[Token],
    limits: Bounds = PAPER,
    batch_size: int = 16,
    current: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Surrogate:
    return clipped_surrogate(
        torch.tensor(batch.column(0), dtype=dtype) if current is None else current,
        torch.tensor(batch.column(1), dtype=dtype),
        torch.tensor(batch.column(2), dtype=dtype),
        torch.tensor(batch.owners),
        batch_size=batch_size,
        clip_low=limits.low,
        clip_high=limits.high,
        max_ratio=limits.most,
    )


def scale_of(batch: Batch[Token]) -> float:
    """The largest term: huge ones of opposite sign may cancel, and errors are measured against it."""
    return max(1.0, max(abs(a) * ratio(c, b) for c, b, a in batch.tokens))


@given(tokens, bounds, st.integers(1, 64))
def test_the_surrogate_is_the_formula(batch: Batch[Token], limits: Bounds, batch_size: int) -> None:
    each = [clipped(*token, limits) for token in batch.tokens]
    expected = over_samples(each, batch.owners, batch_size)
    found = surrogate(batch, limits, batch_size).loss.item()
    assert abs(found - expected) <= 1e-11 * scale_of(batch)


# Small numbers underflow in a product, and then nothing was cut that could be seen.
visible = st.floats(-50, -0.1) | st.just(0.0) | st.floats(0.1, 50)


@given(batches(st.tuples(log_probs, log_probs, visible)))
def test_metrics_say_what_happened_to_the_tokens(batch: Batch[Token]) -> None:
    ratios = [ratio(current, behaviour) for current, behaviour, _ in batch.tokens]
    cut = [
        (min(rho, 10) > 1.28 and a > 0) or (rho < 0.8 and a < 0)
        for rho, a in zip(ratios, batch.column(2), strict=True)
    ]
    found = surrogate(batch, Bounds(most=10))
    count = len(ratios)
    assert found.mean_ratio == pytest.approx(math.fsum(ratios) / count, rel=1e-9)
    assert found.clipped_share == pytest.approx(sum(cut) / count, abs=1e-6)
    assert found.truncated_share == pytest.approx(sum(rho > 10 for rho in ratios) / count, abs=1e-6)


@given(tokens, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(batch: Batch[Token], random: Random) -> None:
    difference = surrogate(batch).loss - surrogate(batch.shuffled(random)).loss
    assert abs(difference.item()) <= 1e-11 * scale_of(batch)


@given(tokens, st.integers(0, 4))
def test_losses_of_passes_add_up_to_the_loss_of_the_batch(batch: Batch[Token], cut: int) -> None:
    summed = sum(surrogate(part).loss.item() for part in batch.passes(cut))
    assert abs(summed - surrogate(batch).loss.item()) <= 1e-11 * scale_of(batch)


@given(tokens)
def test_float32_stays_finite_for_any_log_probs(batch: Batch[Token]) -> None:
    current = torch.tensor(batch.column(0), requires_grad=True)
    found = surrogate(batch, current=current, dtype=torch.float32).loss
    found.backward()
    assert found.isfinite()
    assert current.grad is not None
    assert current.grad.isfinite().all()


@given(tokens)
def test_a_token_without_advantage_gets_no_gradient(batch: Batch[Token]) -> None:
    current = double(batch.column(0)).requires_grad_()
    surrogate(Batch([[(c, b, 0.0) for c, b, _ in s] for s in batch.samples]), current=current).loss.backward()
    assert current.grad is not None
    assert not current.grad.any()


def test_a_long_reply_weighs_no_more_than_a_short_one() -> None:
    values = double([1.0, 3.0, 3.0, 3.0, 3.0])
    assert sum_of_sample_means(values, torch.tensor([0, 1, 1, 1, 1])).item() == pytest.approx(4.0)


def test_samples_may_be_numbered_with_gaps() -> None:
    assert sum_of_sample_means(double([2.0, 4.0, 7.0]), torch.tensor([9, 9, 3])).item() == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "loss", "moves"),
    [
        (1.0, math.log(1.5), -1.28, False),  # already made likelier by enough
        (1.0, math.log(1.27), -1.27, True),
        (1.0, math.log(0.5), -0.5, True),  # a good token that became unlikely is always pulled back
        (-1.0, math.log(0.5), 0.8, False),  # already made less likely by enough
        (-1.0, math.log(0.81), 0.81, True),
        (-1.0, math.log(1.5), 1.5, True),
        (-1.0, math.log(50), 10.0, False),  # no single token weighs more than the truncated ratio
    ],
)
def test_one_token_is_clipped_above_at_128_and_below_at_080_and_truncated_at_10(
    advantage: float, log_ratio: float, loss: float, moves: bool
) -> None:
    current = double([-1.0 + log_ratio]).requires_grad_()
    one = Batch([[(0.0, -1.0, advantage)]])
    found = surrogate(one, Bounds(most=10), batch_size=1, current=current)
    found.loss.backward()
    assert current.grad is not None
    assert found.loss.item() == pytest.approx(loss)
    assert (current.grad.item() != 0) is moves


def test_a_truncation_below_the_clip_is_the_bound_of_both_sides() -> None:
    doubled = Batch([[(-1.0 + math.log(2), -1.0, -1.0)]])
    assert surrogate(doubled, Bounds(most=1.1), batch_size=1).loss.item() == pytest.approx(1.1)


def test_at_ratio_one_the_gradient_is_minus_the_advantage_over_length_and_batch() -> None:
    batch = Batch([[(-1.0, -1.0, 0.7), (-0.5, -0.5, -2.0)], [(-3.0, -3.0, 5.0)]])
    current = double(batch.column(0)).requires_grad_()
    surrogate(batch, current=current).loss.backward()
    torch.testing.assert_close(current.grad, double([-0.7 / 2 / 16, 2.0 / 2 / 16, -5.0 / 16]))


# Log-ratios on both sides of every bound, none within 0.03 of one.
away_from_bounds = st.sampled_from([-1.0, -0.4, -0.15, -0.02, 0.0, 0.1, 0.2, 0.3, 1.5, 2.5])


@settings(max_examples=25)
@given(batches(st.tuples(away_from_bounds, log_probs, st.sampled_from([-1.5, -0.3, 0.4, 2.0]))))
def test_gradients_agree_with_finite_differences(batch: Batch[Token]) -> None:
    current = (double(batch.column(0)) + double(batch.column(1))).requires_grad_()

    def loss(current: torch.Tensor) -> torch.Tensor:
        return surrogate(batch, Bounds(most=10), batch_size=3, current=current).loss

    assert torch.autograd.gradcheck(loss, (current,))


def test_one_sample_alone_keeps_its_whole_advantage() -> None:
    # No group, so no mean is subtracted and no deviation divided by: a batch of one still teaches.
    assert surrogate(Batch([[(-1.0, -1.0, 1.0)]]), batch_size=1).loss.item() == pytest.approx(-1.0)
