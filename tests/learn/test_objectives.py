"""The objectives against the same formulas written out token by token in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.learn.objectives.advantage import combined
from openclaw_rl.learn.objectives.divergence import kl_loss
from openclaw_rl.learn.objectives.surrogate import clipped_surrogate, sum_of_sample_means

LOW, HIGH = 0.2, 0.28

log_probs = st.floats(-300, 0)
numbers = st.floats(-50, 50)


@dataclass
class Tokens:
    """Tokens of a batch, sample after sample; each token is (current, behaviour, advantage)."""

    samples: list[list[tuple[float, float, float]]]

    def column(self, place: int) -> list[float]:
        return [token[place] for sample in self.samples for token in sample]

    def owners(self) -> list[int]:
        return [index for index, sample in enumerate(self.samples) for _ in sample]


batches = st.builds(
    Tokens,
    st.lists(
        st.lists(st.tuples(log_probs, log_probs, numbers), min_size=1, max_size=7), min_size=1, max_size=5
    ),
)


def double(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def surrogate(tokens: Tokens, low: float = LOW, high: float = HIGH, batch_size: int = 16) -> torch.Tensor:
    return clipped_surrogate(
        double(tokens.column(0)),
        double(tokens.column(1)),
        double(tokens.column(2)),
        torch.tensor(tokens.owners()),
        batch_size=batch_size,
        clip_low=low,
        clip_high=high,
    ).loss


def expected_ratio(current: float, behaviour: float) -> float:
    return math.exp(min(20.0, max(-20.0, current - behaviour)))


def expected_surrogate(tokens: Tokens, low: float, high: float, batch_size: int) -> float:
    total = 0.0
    for sample in tokens.samples:
        of_sample = 0.0
        for current, behaviour, advantage in sample:
            ratio = expected_ratio(current, behaviour)
            bounded = min(1 + high, max(1 - low, ratio))
            of_sample -= min(ratio * advantage, bounded * advantage)
        total += of_sample / len(sample)
    return total / batch_size


@given(batches, st.floats(0.01, 0.9), st.floats(0.01, 5), st.integers(1, 64))
def test_the_surrogate_is_the_formula(tokens: Tokens, low: float, high: float, batch_size: int) -> None:
    expected = expected_surrogate(tokens, low, high, batch_size)
    found = surrogate(tokens, low, high, batch_size).item()
    # Huge terms of opposite sign may cancel: the error is measured against the largest.
    scale = max(1.0, max(abs(c[2]) * expected_ratio(c[0], c[1]) for s in tokens.samples for c in s))
    assert abs(found - expected) <= 1e-11 * scale


@given(batches)
def test_ratio_and_clipped_share_say_what_happened_to_the_tokens(tokens: Tokens) -> None:
    ratios = [expected_ratio(c, b) for sample in tokens.samples for c, b, _ in sample]
    cut = [
        (ratio > 1 + HIGH and advantage > 0) or (ratio < 1 - LOW and advantage < 0)
        for ratio, advantage in zip(ratios, tokens.column(2), strict=True)
    ]
    # A product too small for a float is 0 on both sides: nothing was cut that could be seen.
    cut = [was and abs(a) > 1e-290 for was, a in zip(cut, tokens.column(2), strict=True)]
    found = clipped_surrogate(
        double(tokens.column(0)),
        double(tokens.column(1)),
        double([a if abs(a) > 1e-290 else 0.0 for a in tokens.column(2)]),
        torch.tensor(tokens.owners()),
        batch_size=1,
        clip_low=LOW,
        clip_high=HIGH,
    )
    assert found.mean_ratio == pytest.approx(float(np.mean(ratios)), rel=1e-9)
    assert found.clipped_share == pytest.approx(float(np.mean(cut)), abs=1e-6)


@given(batches, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(tokens: Tokens, random: Random) -> None:
    shuffled = list(tokens.samples)
    random.shuffle(shuffled)
    first, second = surrogate(tokens), surrogate(Tokens(shuffled))
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-4)


@given(batches, st.integers(0, 5))
def test_losses_of_parts_of_a_batch_add_up_to_the_loss_of_the_batch(tokens: Tokens, cut: int) -> None:
    whole = surrogate(tokens)
    parts = [Tokens(part) for part in (tokens.samples[:cut], tokens.samples[cut:]) if part]
    summed = torch.stack([surrogate(part) for part in parts]).sum()
    torch.testing.assert_close(summed, whole, rtol=1e-9, atol=1e-4)


@given(batches)
def test_float32_stays_finite_for_any_log_probs(tokens: Tokens) -> None:
    current = torch.tensor(tokens.column(0), requires_grad=True)
    found = clipped_surrogate(
        current,
        torch.tensor(tokens.column(1)),
        torch.tensor(tokens.column(2)),
        torch.tensor(tokens.owners()),
        batch_size=16,
        clip_low=LOW,
        clip_high=HIGH,
    )
    kl = kl_loss(
        current, torch.tensor(tokens.column(1)), torch.tensor(tokens.owners()), batch_size=16, estimator="k3"
    )
    (found.loss + kl).backward()
    assert found.loss.isfinite()
    assert kl.isfinite()
    assert current.grad is not None
    assert current.grad.isfinite().all()


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
    ],
)
def test_one_token_is_clipped_above_at_128_and_below_at_080(
    advantage: float, log_ratio: float, loss: float, moves: bool
) -> None:
    current = double([-1.0 + log_ratio]).requires_grad_()
    found = clipped_surrogate(
        current,
        double([-1.0]),
        double([advantage]),
        torch.tensor([0]),
        batch_size=1,
        clip_low=LOW,
        clip_high=HIGH,
    )
    found.loss.backward()
    assert current.grad is not None
    assert found.loss.item() == pytest.approx(loss)
    assert (current.grad.item() != 0) is moves
    assert found.clipped_share == (0.0 if moves else 1.0)


def test_at_ratio_one_the_gradient_is_minus_the_advantage_over_length_and_batch() -> None:
    behaviour = double([-1.0, -0.5, -3.0])
    current = behaviour.clone().requires_grad_()
    found = clipped_surrogate(
        current,
        behaviour,
        double([0.7, -2.0, 5.0]),
        torch.tensor([0, 0, 1]),
        batch_size=16,
        clip_low=LOW,
        clip_high=HIGH,
    )
    found.loss.backward()
    torch.testing.assert_close(current.grad, double([-0.7 / 2 / 16, 2.0 / 2 / 16, -5.0 / 16]))


# Log-ratios on both sides of both bounds, none within 0.03 of one.
away_from_bounds = st.sampled_from([-1.0, -0.4, -0.15, -0.02, 0.0, 0.1, 0.2, 0.3, 1.5])


@settings(max_examples=25)
@given(st.lists(st.tuples(away_from_bounds, st.sampled_from([-1.5, -0.3, 0.4, 2.0])), min_size=1, max_size=6))
def test_gradients_agree_with_finite_differences(tokens: list[tuple[float, float]]) -> None:
    behaviour = double([-0.5 - place for place in range(len(tokens))])
    advantage = double([advantage for _, advantage in tokens])
    owners = torch.tensor([place // 2 for place in range(len(tokens))])
    current = (behaviour + double([ratio for ratio, _ in tokens])).requires_grad_()

    def loss(current: torch.Tensor) -> torch.Tensor:
        clipped = clipped_surrogate(
            current, behaviour, advantage, owners, batch_size=3, clip_low=LOW, clip_high=HIGH
        )
        return clipped.loss + 0.1 * kl_loss(current, behaviour, owners, batch_size=3, estimator="k3")

    assert torch.autograd.gradcheck(loss, (current,))


@given(batches, st.integers(1, 64))
def test_the_kl_estimate_is_the_formula_and_never_negative(tokens: Tokens, batch_size: int) -> None:
    total = 0.0
    for sample in tokens.samples:
        of_sample = 0.0
        for current, reference, _ in sample:
            difference = min(20.0, max(-20.0, reference - current))
            of_sample += math.exp(difference) - difference - 1
        total += of_sample / len(sample)
    found = kl_loss(
        double(tokens.column(0)),
        double(tokens.column(1)),
        torch.tensor(tokens.owners()),
        batch_size=batch_size,
        estimator="k3",
    ).item()
    assert found == pytest.approx(total / batch_size, rel=1e-9, abs=1e-12)
    assert found >= -1e-15


def test_the_kl_estimate_is_zero_without_difference() -> None:
    same = double([-1.0, -7.0])
    assert kl_loss(same, same, torch.tensor([0, 0]), batch_size=2, estimator="k3").item() == 0.0


tokens_with_hints = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 1.0]),
        st.one_of(log_probs, st.just(math.nan), st.just(-math.inf)),
        log_probs,
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(tokens_with_hints, st.floats(0, 3), st.floats(0, 3))
def test_the_advantage_is_the_formula_and_never_reads_a_teacher_that_was_not_there(
    tokens: list[tuple[float, float, float, bool]], reward_weight: float, hint_weight: float
) -> None:
    tokens = [(r, t if math.isfinite(t) or not h else -2.0, b, h) for r, t, b, h in tokens]
    found = combined(
        double([token[0] for token in tokens]),
        double([token[1] for token in tokens]),
        double([token[2] for token in tokens]),
        torch.tensor([token[3] for token in tokens]),
        reward_weight=reward_weight,
        hint_weight=hint_weight,
    )
    for value, (reward, teacher, behaviour, hinted) in zip(found.tolist(), tokens, strict=True):
        expected = reward_weight * reward
        if hinted:
            expected += hint_weight * (teacher - behaviour)
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_one_sample_alone_keeps_its_whole_advantage() -> None:
    # No group, so no mean is subtracted and no deviation divided by: a batch of one still teaches.
    found = surrogate(Tokens([[(-1.0, -1.0, 1.0)]]), batch_size=1)
    assert found.item() == pytest.approx(-1.0)
