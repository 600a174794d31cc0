"""One advantage for each judged turn: groups of one prompt, lone replies, and turns without a verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_samples import a_sample
from objective_formulas import group_advantages

from openclaw_rl.learn.rewards import turn_advantages
from openclaw_rl.model import Sample, Sampling, Score, Turn, TurnKind, TurnState

TURN = Turn(
    id="turn_1",
    session_id="s1",
    kind=TurnKind.MAIN,
    state=TurnState.WAITING_UPDATE,
    model="tiny",
    policy_version=0,
    messages=({"role": "user", "content": "Hi"},),
    reply={"role": "assistant", "content": "Ho"},
    prompt_ids=(1,),
    response_ids=(2,),
    logprobs=(-1.0,),
    sampling=Sampling(),
    finish_reason="stop",
    created_at=1.0,
    finished_at=2.0,
    conversation_hash="hash",
)

Judged = tuple[Score | None, int]
"""A score and the number of a prompt."""

judged = st.lists(st.tuples(st.sampled_from([1, -1, 0, None]), st.integers(0, 3)), min_size=1, max_size=9)


def samples_of(replies: list[Judged]) -> list[Sample]:
    return [a_sample(replace(TURN, prompt_ids=(7, prompt)), score) for score, prompt in replies]


def expected_advantages(replies: list[Judged], baseline: float) -> list[float]:
    """Only a verdict takes part: no score and the score 0, which is the judge's "cannot tell", are out."""
    found = []
    for score, prompt in replies:
        peers = [float(other) for other, theirs in replies if other and theirs == prompt]
        if not score:
            found.append(0.0)
        elif len(peers) == 1:
            found.append(score - baseline)
        else:
            found.append(group_advantages(peers, [0] * len(peers))[peers.index(score)])
    return found


@given(judged, st.floats(-1, 1))
def test_advantages_are_the_groups_or_the_score_less_the_baseline(
    replies: list[Judged], baseline: float
) -> None:
    found = turn_advantages(samples_of(replies), baseline)
    assert found == pytest.approx(expected_advantages(replies, baseline), abs=1e-9)


@given(judged, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(replies: list[Judged], random: Random) -> None:
    order = random.sample(range(len(replies)), len(replies))
    expected = turn_advantages(samples_of(replies), 0.25)
    found = turn_advantages(samples_of([replies[place] for place in order]), 0.25)
    assert found == pytest.approx([expected[place] for place in order], abs=1e-9)


def test_replies_to_one_prompt_are_compared_with_each_other() -> None:
    better = math.sqrt(0.5)
    found = turn_advantages(samples_of([(1, 0), (1, 1), (-1, 0)]), 0.5)
    assert found == pytest.approx([better, 0.5, -better], abs=1e-5)


def test_a_turn_without_a_verdict_is_not_a_bad_one() -> None:
    # A turn that is there for its hint must not be punished because another answer to its prompt was good.
    assert turn_advantages(samples_of([(1, 0), (None, 0), (0, 0)]), 0.0) == [1.0, 0.0, 0.0]


def test_replies_that_are_all_as_good_teach_nothing() -> None:
    assert turn_advantages(samples_of([(1, 0), (1, 0), (1, 0)]), 0.5) == [0.0, 0.0, 0.0]


def test_a_batch_without_verdicts_has_no_advantages() -> None:
    assert turn_advantages(samples_of([(None, 0), (0, 1)]), 0.5) == [0.0, 0.0]
