"""What the store has of a client's conversation, and what must be true of it whoever the client is."""

from __future__ import annotations

from running_processes import House, eventually

from openclaw_rl.model import Message, NextState, Turn, TurnKind, TurnState
from openclaw_rl.policy.message_forms import text_of
from openclaw_rl.store.learning import UNDER_A_GRAMMAR


def conversation_about(house: House, words: str) -> list[Turn]:
    """The turns whose messages hold `words`, in order."""
    turns = house.store.conversations.turns()
    found = [turn for turn in turns if any(words in text_of(said.get("content")) for said in turn.messages)]
    return sorted(found, key=lambda turn: turn.created_at)


def assert_one_session(turns: list[Turn]) -> None:
    """They are main turns of one session, each the parent of the next."""
    assert {turn.kind for turn in turns} == {TurnKind.MAIN}
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.parent_id for turn in turns] == [None, *(turn.id for turn in turns[:-1])]


def next_state_of(house: House, turn: Turn) -> NextState:
    (state,) = house.store.conversations.next_states(turn.id)
    assert state.source == "conversation"
    return state


def results_of(state: NextState) -> list[Message]:
    return [message for message in state.messages if message["role"] == "tool"]


def wait_until_judged(house: House, turn: Turn) -> None:
    """A judge has read what followed, and the turn, whose reply a grammar wrote, does not train."""
    (judgement,) = eventually(lambda: house.store.learning.judgements(turn.id), 20)
    assert judgement.votes
    judged = house.store.conversations.turn(turn.id)
    assert judged is not None
    if judged.state is not TurnState.NO_SIGNAL:
        assert (judged.state, judged.state_reason) == (TurnState.SET_ASIDE, UNDER_A_GRAMMAR)
