"""Advantages against the formulas written out in float64: Combined, GRPO's groups, the running baseline."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_formulas import combined_advantage, group_advantages
from token_batches import double, log_probs, numbers

from openclaw_rl.learn.objectives.advantage import combined, group_normalised, next_baseline

weights = st.floats(0, 3)
not_there = st.sampled_from([math.nan, -math.inf, 0.0])
hinted_tokens = st.tuples(numbers, log_probs, log_probs, st.just(True))
plain_tokens = st.tuples(numbers, not_there, log_probs, st.just(False))


@given(st.lists(hinted_tokens | plain_tokens, min_size=1, max_size=8), weights, weights)
def test_combined_is_the_formula_and_never_reads_a_teacher_that_was_not_there(
    tokens: list[tuple[float, float, float, bool]], reward_weight: float, hint_weight: float
) -> None:
    rewards, teacher, behaviour, hinted = zip(*tokens, strict=True)
    found = combined(
        double(rewards),
        double(teacher),
        double(behaviour),
        torch.tensor(hinted),
        reward_weight=reward_weight,
        hint_weight=hint_weight,
    )
    for value, (reward, taught, old, has_hint) in zip(found.tolist(), tokens, strict=True):
        expected = combined_advantage(
            reward, taught if has_hint else None, old, reward_weight=reward_weight, hint_weight=hint_weight
        )
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(st.lists(hinted_tokens, min_size=1, max_size=8))
def test_combined_stays_finite_in_float32(tokens: list[tuple[float, float, float, bool]]) -> None:
    columns = [torch.tensor(column) for column in zip(*tokens, strict=True)]
    assert combined(*columns, reward_weight=3, hint_weight=3).isfinite().all()


grouped = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 1.0]) | st.floats(-50, 50), st.integers(0, 4)),
    min_size=1,
    max_size=10,
)


def normalised(replies: list[tuple[float, int]]) -> list[float]:
    rewards, groups = zip(*replies, strict=True)
    found: list[float] = group_normalised(double(rewards), torch.tensor(groups)).tolist()
    return found


@given(grouped)
def test_groups_are_normalised_by_the_formula(replies: list[tuple[float, int]]) -> None:
    rewards, groups = zip(*replies, strict=True)
    # A deviation of rounding errors is nothing against 1e-6, which keeps both sides near 0.
    assert normalised(replies) == pytest.approx(group_advantages(rewards, groups), rel=1e-6, abs=1e-6)


@given(grouped, st.randoms(use_true_random=False))
def test_the_order_of_replies_does_not_matter(replies: list[tuple[float, int]], random: Random) -> None:
    order = random.sample(range(len(replies)), len(replies))
    expected = normalised(replies)
    found = normalised([replies[place] for place in order])
    assert found == pytest.approx([expected[place] for place in order], rel=1e-6, abs=1e-6)


@given(st.floats(-50, 50))
def test_a_reply_alone_in_its_group_keeps_its_reward(reward: float) -> None:
    assert normalised([(reward, 3), (1.0, 0), (-1.0, 0)])[0] == reward


@given(st.floats(-50, 50), st.integers(2, 8))
def test_a_group_of_equal_rewards_teaches_nothing(reward: float, size: int) -> None:
    assert normalised([(reward, 0)] * size) == pytest.approx([0.0] * size, abs=1e-6)


def test_a_group_of_two_is_the_textbook_example() -> None:
    # Mean 0 and, over n - 1, deviation sqrt(2).
    assert normalised([(1.0, 7), (-1.0, 7)]) == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-6)


@given(st.lists(st.floats(-1, 1), max_size=8), st.floats(0, 0.99))
def test_the_baseline_is_the_discounted_sum_of_the_past(means: list[float], decay: float) -> None:
    found = 0.0
    for mean in means:
        found = next_baseline(found, mean, decay)
    expected = math.fsum((1 - decay) * decay**age * mean for age, mean in enumerate(reversed(means)))
    assert found == pytest.approx(expected, abs=1e-12)
