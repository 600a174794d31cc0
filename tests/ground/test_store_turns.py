"""Turns, sessions and next states in the store: exact round trips and who moves a turn to which state."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ground_nouns import a_turn, add_sample, add_turn, an_update, float32, follow, judge, state_of
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.model import Sampling, Score, Turn, TurnKind, TurnState
from openclaw_rl.store import Store
from openclaw_rl.store.continuations import MOST_SIBLINGS

FULL_TURN = a_turn(
    id="turn_full",
    kind=TurnKind.MAIN,
    kind_reason="header",
    state_reason="because",
    policy_version=7,
    messages=(
        {"role": "system", "content": "Sei nett. 你好 🙂"},
        {"role": "user", "content": [{"type": "text", "text": "a\u0000b\ud800"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"arguments": "{"}}]},
    ),
    tools=({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},),
    reply={"role": "assistant", "content": "ok", "reasoning": None},
    prompt_ids=(0, 1, 2**31 - 1),
    response_ids=(0, 151645, 2**31 - 1, 17),
    logprobs=float32(-0.0, -1e-8, -3.4e38, -math.pi),
    sampling=Sampling(temperature=0.3, top_p=0.9, top_k=40, max_tokens=9, stop=("\n\n", "停"), seed=2**40),
    request_hash="request",
    parent_id="turn_before",
    created_at=1700000000.123456,
    finished_at=1700000001.654321,
)


def test_a_turn_comes_back_exactly_as_it_was_written(store: Store) -> None:
    store.conversations.open_session(FULL_TURN.session_id, "me")
    store.conversations.add_turn(FULL_TURN)
    assert store.conversations.turn(FULL_TURN.id) == FULL_TURN


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.floats(max_value=0.0, width=32, allow_nan=False)), max_size=50
    )
)
def test_any_token_ids_and_float32_log_probs_come_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, sampled: list[tuple[int, float]]
) -> None:
    store = Store.open(tmp_path_factory.getbasetemp() / "tokens.sqlite")
    turn = add_turn(store, response_ids=tuple(i for i, _ in sampled), logprobs=tuple(p for _, p in sampled))
    found = store.conversations.turn(turn.id)
    store.close()
    assert found is not None
    assert found.response_ids == turn.response_ids
    assert [math.copysign(1, p) for p in found.logprobs] == [math.copysign(1, p) for p in turn.logprobs]
    assert found.logprobs == turn.logprobs


def test_an_unknown_turn_or_session_is_none(store: Store) -> None:
    assert store.conversations.turn("turn_x") is None
    assert store.conversations.session("s_x") is None


def test_a_turn_of_unequal_tokens_and_log_probs_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="2 sampled tokens but 1 log-probs"):
        a_turn(response_ids=(1, 2), logprobs=(0.0,))


def test_a_turn_of_an_unknown_session_or_a_second_of_its_id_is_refused(store: Store) -> None:
    with pytest.raises(Exception, match="FOREIGN KEY"):
        store.conversations.add_turn(a_turn("nobody"))
    turn = add_turn(store)
    with pytest.raises(Exception, match="UNIQUE"):
        store.conversations.add_turn(replace(turn, policy_version=9))
    assert store.conversations.turn(turn.id) == turn


def test_an_error_of_the_database_holds_no_conversation_text(store: Store) -> None:
    turn = add_turn(store, messages=({"role": "user", "content": "my secret plan"},))
    with pytest.raises(Exception, match="UNIQUE") as caught:
        store.conversations.add_turn(turn)
    assert "secret plan" not in str(caught.value)


# States


def test_a_next_state_sends_the_turn_to_the_judge(store: Store) -> None:
    turn = add_turn(store)
    recorded = store.conversations.add_next_state(
        turn.id, "feedback", [{"role": "user", "content": "no"}], -1
    )
    assert state_of(store, turn) is TurnState.WAITING_JUDGE
    assert store.conversations.next_states(turn.id) == [recorded]
    assert recorded.given_score == -1
    [(judged, next_state)] = store.learning.turns_to_judge(10)
    assert (judged.id, next_state) == (turn.id, recorded)


@pytest.mark.parametrize(
    ("score", "hint", "state"),
    [
        (-1, None, TurnState.WAITING_UPDATE),
        (1, None, TurnState.WAITING_UPDATE),
        (0, "Be brief.", TurnState.WAITING_UPDATE),
        (None, "Be brief.", TurnState.WAITING_UPDATE),
        (0, None, TurnState.NO_SIGNAL),
        (0, "", TurnState.NO_SIGNAL),
        (None, None, TurnState.UNJUDGED),
    ],
)
def test_a_judgement_moves_the_turn_by_what_it_found(
    store: Store, score: Score | None, hint: str | None, state: TurnState
) -> None:
    turn = add_turn(store)
    assert judge(store, turn, follow(store, turn), score, hint) is state
    assert state_of(store, turn) is state
    assert store.learning.turns_to_judge(10) == []
    assert len(store.learning.waiting_samples(10)) == (state is TurnState.WAITING_UPDATE)


def test_unjudged_is_not_a_score_of_zero(store: Store) -> None:
    turn = add_turn(store)
    judge(store, turn, follow(store, turn), None)
    [judgement] = store.learning.judgements(turn.id)
    assert judgement.score is None
    assert [vote.question for vote in judgement.votes] == ["evaluative", "directive"]


def test_a_newer_next_state_while_the_judge_is_at_work_keeps_the_turn_waiting(store: Store) -> None:
    turn = add_turn(store)
    first = follow(store, turn, "ok")
    second = follow(store, turn, "no, wrong")
    assert judge(store, turn, first, 1) is TurnState.WAITING_JUDGE
    assert state_of(store, turn) is TurnState.WAITING_JUDGE
    assert [pair[1].id for pair in store.learning.turns_to_judge(10)] == [second]
    assert judge(store, turn, second, -1) is TurnState.WAITING_UPDATE


def test_a_late_judgement_of_an_older_next_state_does_not_become_the_sample(store: Store) -> None:
    turn = add_turn(store)
    first, second = follow(store, turn, "ok"), follow(store, turn, "no, wrong")
    judge(store, turn, second, -1, "Be right.")
    judge(store, turn, first, 1)
    [sample] = store.learning.waiting_samples(10)
    assert (sample.reward, sample.hint, sample.next_state.id) == (-1.0, "Be right.", second)


@pytest.mark.parametrize("score", [0, None, -1])
def test_a_judged_turn_goes_back_to_the_judge_when_more_is_said(store: Store, score: Score | None) -> None:
    turn = add_turn(store)
    judge(store, turn, follow(store, turn), score)
    follow(store, turn, "and one more thing")
    assert state_of(store, turn) is TurnState.WAITING_JUDGE


@pytest.mark.parametrize("state", [TurnState.ABORTED, TurnState.SET_ASIDE])
def test_a_turn_that_ended_unfit_stays_so_whatever_follows(store: Store, state: TurnState) -> None:
    turn = add_turn(store, state=state)
    judge(store, turn, follow(store, turn))
    assert state_of(store, turn) is state
    assert store.learning.waiting_samples(10) == []


def test_a_side_turn_never_reaches_judge_or_learner(store: Store) -> None:
    turn = add_turn(store, kind=TurnKind.SIDE, state=TurnState.SIDE)
    assert judge(store, turn, follow(store, turn)) is TurnState.SIDE
    assert store.learning.turns_to_judge(10) == []
    assert store.learning.waiting_samples(10) == []


def test_a_trained_turn_stays_trained(store: Store) -> None:
    turn = add_sample(store)
    store.learning.record_update(*an_update(1, turn))
    late = follow(store, turn, "still wrong")
    assert judge(store, turn, late) is TurnState.TRAINED
    store.conversations.close_session(turn.session_id, "done")
    store.learning.set_aside(turn.id, "too old")
    assert store.conversations.supersede(turn.id, "retry") is False
    assert state_of(store, turn) is TurnState.TRAINED
    assert [state.id for state in store.conversations.next_states(turn.id)][-1] == late


def test_only_a_turn_that_waits_for_its_next_state_is_superseded(store: Store) -> None:
    waiting, followed = add_turn(store), add_turn(store)
    follow(store, followed)
    assert store.conversations.supersede(waiting.id, "sent again") is True
    assert store.conversations.supersede(followed.id, "sent again") is False
    assert state_of(store, waiting) is TurnState.SUPERSEDED
    assert state_of(store, followed) is TurnState.WAITING_JUDGE


# Sessions


def test_closing_a_session_makes_its_waiting_turns_unpaired_and_no_others(store: Store) -> None:
    waiting, followed, elsewhere = add_turn(store), add_turn(store), add_turn(store, "s2")
    follow(store, followed)
    store.conversations.close_session("s1", "client said so")
    assert state_of(store, waiting) is TurnState.UNPAIRED
    assert state_of(store, followed) is TurnState.WAITING_JUDGE
    assert state_of(store, elsewhere) is TurnState.WAITING_NEXT_STATE
    session = store.conversations.session("s1")
    assert session is not None
    assert (session.close_reason, session.closed_at is not None) == ("client said so", True)
    assert store.conversations.count_sessions() == {"open": 1, "closed": 1}


def test_an_unpaired_turn_is_judged_when_something_follows_after_all(store: Store) -> None:
    turn = add_turn(store)
    store.conversations.close_session("s1", "idle")
    reopened = store.conversations.open_session("s1", "me")
    follow(store, turn)
    assert (reopened.closed_at, reopened.close_reason) == (None, None)
    assert store.conversations.session("s1") == reopened
    assert state_of(store, turn) is TurnState.WAITING_JUDGE


def test_a_turn_whose_session_was_closed_while_it_was_answered_waits_for_nothing(store: Store) -> None:
    late, side = a_turn(), a_turn(kind=TurnKind.SIDE, state=TurnState.SIDE)
    store.conversations.open_session(late.session_id, "me")
    store.conversations.close_session(late.session_id, "idle")
    for turn in (late, side):
        store.conversations.add_turn(turn)
    found = store.conversations.turn(late.id)
    assert found is not None
    assert (found.state, found.state_reason) == (TurnState.UNPAIRED, "session closed: idle")
    assert state_of(store, side) is TurnState.SIDE
    store.conversations.open_session(late.session_id, "me")
    follow(store, late)
    assert state_of(store, late) is TurnState.WAITING_JUDGE


def test_only_idle_open_sessions_are_closed_by_idleness(store: Store) -> None:
    old = add_turn(store, "old", finished_at=time.time() - 100)
    fresh = add_turn(store, "fresh")
    add_turn(store, "closed", finished_at=time.time() - 100)
    store.conversations.close_session("closed", "done")
    assert store.conversations.close_idle_sessions(time.time() - 50) == 1
    assert store.conversations.close_idle_sessions(time.time() - 50) == 0
    assert state_of(store, old) is TurnState.UNPAIRED
    assert state_of(store, fresh) is TurnState.WAITING_NEXT_STATE


# Finding turns again


def found(store: Store, hashes: list[str], tenant: str = "me", session_id: str | None = None) -> str | None:
    turn = store.continuations.continued(hashes, tenant, session_id)
    return turn.id if turn else None


def test_a_request_continues_the_longest_known_prefix(store: Store) -> None:
    short = add_turn(store, conversation_hash="short")
    long = add_turn(store, conversation_hash="long", finished_at=1.0)
    follow(store, long)  # neither its age nor its state matters against the length
    assert found(store, ["longer", "long", "short"]) == long.id
    assert found(store, ["other", "short"]) == short.id
    assert found(store, ["other"]) is None
    assert found(store, []) is None


def test_among_equal_prefixes_one_still_waiting_is_preferred_then_the_newest(store: Store) -> None:
    older = add_turn(store, finished_at=10.0)
    newer = add_turn(store, finished_at=20.0)
    newest = add_turn(store, finished_at=30.0)
    follow(store, newest)
    assert found(store, ["hash"]) == newer.id
    follow(store, newer)
    assert found(store, ["hash"]) == older.id
    follow(store, older)
    assert found(store, ["hash"]) == newest.id


def test_only_delivered_main_turns_of_the_tenant_and_session_are_continued(store: Store) -> None:
    add_turn(store, "aborted", state=TurnState.ABORTED)
    add_turn(store, "side", kind=TurnKind.SIDE, state=TurnState.SIDE)
    add_turn(store, "theirs", tenant="them")
    assert found(store, ["hash"]) is None
    mine = add_turn(store, "mine")
    assert found(store, ["hash"]) == mine.id
    assert found(store, ["hash"], session_id="mine") == mine.id
    assert found(store, ["hash"], session_id="other") is None


def test_siblings_answer_from_the_same_point_newest_first(store: Store) -> None:
    first = add_turn(store, finished_at=1.0)
    again = add_turn(store, finished_at=2.0)
    add_turn(store, finished_at=3.0, state=TurnState.ABORTED)
    add_turn(store, finished_at=4.0, kind=TurnKind.SIDE, state=TurnState.SIDE)
    child = add_turn(store, parent_id=first.id)
    add_turn(store, "s2")

    def ids(turns: list[Turn]) -> list[str]:
        return [turn.id for turn in turns]

    assert ids(store.continuations.siblings(session_id="s1", parent_id=None)) == [again.id, first.id]
    assert ids(store.continuations.siblings(session_id="s1", parent_id=first.id)) == [child.id]


def test_of_many_siblings_and_equal_replies_the_newest_are_read(store: Store) -> None:
    """All of it is read while other requests wait, so what one client sends must not make it longer."""
    turns = [
        add_turn(store, finished_at=float(number), reply_hash="said") for number in range(MOST_SIBLINGS + 9)
    ]
    siblings = store.continuations.siblings(session_id="s1", parent_id=None)
    assert [turn.id for turn in siblings] == [turn.id for turn in reversed(turns[9:])]
    same = store.continuations.replied_the_same("said", "me")
    assert [turn.id for turn, _ in same] == [turn.id for turn in reversed(turns[-6:])]
    assert all(messages == list(turns[0].messages) for _, messages in same)


def test_a_history_that_is_too_long_to_compare_is_not_read(store: Store) -> None:
    long = ({"role": "user", "content": "x" * 600_000},)
    turn = add_turn(store, reply_hash="said", messages=long)
    [(found, messages)] = store.continuations.replied_the_same("said", "me")
    assert (found.id, messages) == (turn.id, [])


def test_turns_are_listed_newest_first_and_by_session_and_state(store: Store) -> None:
    first = add_turn(store, finished_at=1.0)
    second = add_turn(store, "s2", finished_at=2.0)
    third = add_turn(store, finished_at=3.0)
    follow(store, third)
    listed = store.conversations.turns
    assert [turn.id for turn in listed()] == [third.id, second.id, first.id]
    assert [turn.id for turn in listed(limit=1)] == [third.id]
    assert [turn.id for turn in listed(session_id="s1")] == [third.id, first.id]
    assert [turn.id for turn in listed(state=TurnState.WAITING_JUDGE)] == [third.id]


def test_counts_and_reasons_say_why_turns_will_not_train(store: Store) -> None:
    add_turn(store)
    add_turn(store, "s2", kind=TurnKind.SIDE, state=TurnState.SIDE, kind_reason="title request")
    add_turn(store, "s3", state=TurnState.ABORTED, state_reason="client hung up")
    add_turn(store, "s3", state=TurnState.ABORTED, state_reason="client hung up")
    assert store.conversations.count_turns() == {
        TurnState.WAITING_NEXT_STATE: 1,
        TurnState.SIDE: 1,
        TurnState.ABORTED: 2,
    }
    assert store.conversations.reasons() == [
        (TurnState.ABORTED, "client hung up", 2),
        (TurnState.SIDE, "title request", 1),
    ]


def test_a_new_store_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "store.sqlite"
    store = Store.open(path)
    add_turn(store)
    modes = {file.name: file.stat().st_mode & 0o077 for file in path.parent.iterdir()}
    store.close()
    assert modes
    assert set(modes.values()) == {0}
