"""From votes to a verdict: it depends on the valid votes alone, and on nothing but their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.judge import verdict
from openclaw_rl.model import Vote

scores = st.sampled_from([-1, 0, 1, None, 7])
evaluative = st.builds(Vote, question=st.just("evaluative"), score=scores, error=st.none())
hints = st.none() | st.text(max_size=30)
directive = st.builds(Vote, question=st.just("directive"), score=scores, hint=hints)
votes = st.lists(evaluative | directive, max_size=9)


def evaluative_votes(*given_scores: int | None) -> list[Vote]:
    return [Vote("evaluative", score) for score in given_scores]


def hinting(hint: str | None, score: int | None = 1) -> Vote:
    return Vote("directive", score, hint=hint)


@given(votes, st.randoms())
def test_the_order_of_the_votes_never_matters(some, random):
    shuffled = list(some)
    random.shuffle(shuffled)
    assert verdict.score_of(shuffled) == verdict.score_of(some)
    assert verdict.hint_of(shuffled) == verdict.hint_of(some)


@given(votes)
def test_a_score_is_none_exactly_when_no_vote_is_valid(some):
    valid = [vote for vote in some if vote.question == "evaluative" and vote.score in (-1, 0, 1)]
    assert (verdict.score_of(some) is None) == (not valid)


@given(votes)
def test_a_hint_is_the_longest_accepted_one(some):
    accepted = [v.hint.strip() for v in some if v.question == "directive" and v.score == 1 and v.hint]
    sizes = [len(hint.encode()) for hint in accepted if len(hint.encode()) > 10]
    chosen = verdict.hint_of(some)
    assert (chosen is None) == (not sizes)
    assert chosen is None or (chosen in accepted and len(chosen.encode()) == max(sizes))


@pytest.mark.parametrize(
    ("given_scores", "expected"),
    [
        ((1, 1, -1), 1),
        ((-1, None, None), -1),
        ((1, -1), 0),
        ((1, 1, -1, -1, 0), 0),
        ((0, 0, 1), 0),
        ((None, 7), None),
        ((), None),
    ],
)
def test_plurality_with_ties_at_zero(given_scores, expected):
    assert verdict.score_of(evaluative_votes(*given_scores)) == expected


def test_hints_of_votes_that_say_minus_one_or_are_too_short_are_not_taken():
    assert (
        verdict.hint_of([hinting("a long enough hint", -1), hinting("  0123456789  "), hinting(None)]) is None
    )
    assert verdict.hint_of([hinting("0123456789a")]) == "0123456789a"
    assert verdict.hint_of([hinting("不要用列表")]) == "不要用列表"


def test_no_answer_is_told_from_an_answer_that_cannot_be_read():
    dead = verdict.unanswered("evaluative", "HTTP 503")
    unread = verdict.unread("evaluative", "well...", "no boxed answer")
    assert verdict.no_answer_reason([dead, dead]) == "HTTP 503"
    assert verdict.no_answer_reason([dead, unread]) is None
    assert verdict.no_answer_reason([]) is None
    assert verdict.score_of([dead, unread]) is None
