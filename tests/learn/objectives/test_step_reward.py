"""Rewards of an episode's steps against the formula, with the buckets that have no spread."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objective_formulas import step_advantages as expected_advantages

from openclaw_rl.learn.objectives.step_reward import Step, step_advantages

votes = st.lists(st.sampled_from([-1.0, 1.0]), max_size=3).map(tuple)
steps = st.builds(
    Step,
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1),
    votes,
)


@given(st.lists(steps, max_size=12))
def test_advantages_are_the_formula(given_steps: list[Step]) -> None:
    rewards = [s.outcome + (sum(s.votes) / len(s.votes) if s.votes else 0) for s in given_steps]
    expected = expected_advantages(rewards, [(step.task, step.index) for step in given_steps])
    found = step_advantages(given_steps)
    for one, other in zip(found, expected, strict=True):
        assert one == (None if other is None else pytest.approx(other, rel=1e-6, abs=1e-9))


@given(st.lists(steps, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_steps_does_not_matter(given_steps: list[Step], random: Random) -> None:
    # A bucket with a spread, so that the rule for the empty batch, which takes the first, is out of play.
    given_steps = [*given_steps, Step("c", 0, 1.0), Step("c", 0, -1.0)]
    order = random.sample(range(len(given_steps)), len(given_steps))
    expected = step_advantages(given_steps)
    found = step_advantages([given_steps[place] for place in order])
    for one, place in zip(found, order, strict=True):
        assert one == (None if expected[place] is None else pytest.approx(expected[place], abs=1e-9))


def test_a_step_has_the_outcome_and_the_mean_of_its_votes() -> None:
    assert Step("a", 0, 1.0, (1.0, -1.0, -1.0)).reward == pytest.approx(2 / 3)
    assert Step("a", 0, -1.0).reward == -1.0


def test_a_bucket_is_normalised_by_the_populations_deviation() -> None:
    found = step_advantages([Step("a", 1, 1.0), Step("a", 1, -1.0)])
    assert found == pytest.approx([1.0, -1.0], abs=1e-5)


def test_the_longest_attempts_last_step_keeps_its_reward_and_equal_rewards_are_left_out() -> None:
    found = step_advantages([Step("a", 0, 1.0), Step("a", 0, 1.0), Step("a", 1, 1.0, (1.0,))])
    assert found == [None, None, 2.0]


def test_where_nothing_differs_the_first_bucket_stays_without_advantage() -> None:
    found = step_advantages([Step("a", 0, 1.0), Step("b", 0, -1.0), Step("a", 0, 1.0), Step("b", 0, -1.0)])
    assert found == [0.0, None, 0.0, None]
    assert step_advantages([]) == []


@given(st.floats(-1, 1), st.integers(2, 6))
def test_every_advantage_is_a_finite_number(outcome: float, size: int) -> None:
    almost_equal = [Step("a", 0, outcome + place * 1e-9) for place in range(size)]
    assert all(one is not None and math.isfinite(one) for one in step_advantages(almost_equal))
