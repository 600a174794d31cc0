"""Words and scores that are no message of the conversation: feedback on a reply, outcome of a session.

Each becomes a next state of one turn. Knows no HTTP; every function blocks on the store.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from openclaw_rl.gateway.bodies import Body
from openclaw_rl.gateway.errors import ApiError, bad_request, not_found
from openclaw_rl.gateway.sessions import Sessions
from openclaw_rl.model import Message, NextStateSource, Score, Turn, TurnKind, TurnState
from openclaw_rl.store.conversations import Conversations

_TOO_LATE = {
    TurnState.TRAINED: "was already trained, so this changes nothing; the words are kept beside it",
    TurnState.SET_ASIDE: "was set aside as unfit to learn from, so this changes nothing; the words are kept",
}
_NEWEST_TURNS = 200
"""A session's outcome is looked for among so many; the others are older helper calls' or replaced."""


def _no_boolean(value: object) -> object:
    """Python's True equals 1, but a client that sends true means something else than a score."""
    if isinstance(value, bool):
        raise ValueError("Input should be -1, 0 or 1")  # pydantic turns it into the field's error
    return value


GivenScore = Annotated[Score, BeforeValidator(_no_boolean)]


class FeedbackRequest(Body):
    response_id: str
    score: GivenScore | None = None
    text: str | None = None


class OutcomeRequest(Body):
    score: GivenScore
    text: str | None = None


def give_feedback(
    sessions: Sessions, conversations: Conversations, tenant: str, request: FeedbackRequest
) -> Turn:
    """Record feedback on a reply and return its turn as it is now; raises ApiError 400, 404, 409."""
    if request.score is None and not request.text:
        raise bad_request("score, text: feedback needs at least one of them", "score")
    turn = sessions.turn_of(request.response_id, tenant)
    if turn is None:
        raise not_found(f"There is no response {request.response_id!r}.", param="response_id")
    if turn.kind is TurnKind.SIDE:
        raise _conflict(turn, f"is a side turn, which never trains: {turn.kind_reason}")
    if turn.state is TurnState.ABORTED:
        raise _conflict(turn, f"was aborted, so nobody saw its whole reply: {turn.state_reason}")
    return _add(conversations, turn, "feedback", request.score, request.text)


def give_outcome(
    sessions: Sessions, conversations: Conversations, tenant: str, stated: str, request: OutcomeRequest
) -> Turn:
    """Score a session's newest reply with its outcome, close the session, and return that turn."""
    session_id = _existing(sessions, conversations, tenant, stated)
    unseen = (TurnState.ABORTED, TurnState.SUPERSEDED)
    newest = conversations.turns(session_id=session_id, limit=_NEWEST_TURNS)
    turn = next((t for t in newest if t.kind is TurnKind.MAIN and t.state not in unseen), None)
    if turn is None:
        raise ApiError(409, f"Session {session_id} has no reply that an outcome could score.", code="no_turn")
    try:
        return _add(conversations, turn, "outcome", request.score, request.text)
    finally:
        conversations.close_session(session_id, "outcome")


def close(sessions: Sessions, conversations: Conversations, tenant: str, stated: str) -> str:
    """Close a session and return its id."""
    session_id = _existing(sessions, conversations, tenant, stated)
    conversations.close_session(session_id, "closed by the client")
    return session_id


def _add(
    conversations: Conversations, turn: Turn, source: NextStateSource, score: Score | None, text: str | None
) -> Turn:
    messages: list[Message] = [{"role": "user", "content": text}] if text else []
    conversations.add_next_state(turn.id, source, messages, score)
    now = conversations.turn(turn.id) or turn
    if now.state in _TOO_LATE:
        raise _conflict(now, _TOO_LATE[now.state])
    return now


def _conflict(turn: Turn, why: str) -> ApiError:
    return ApiError(409, f"Turn {turn.id} {why}.", code=f"turn_{turn.state.value}")


def _existing(sessions: Sessions, conversations: Conversations, tenant: str, stated: str) -> str:
    session_id = sessions.internal_id(tenant, stated)
    if not _owns(conversations, tenant, session_id):
        raise not_found(f"There is no session {stated!r}.", param="session_id")
    return session_id


def _owns(conversations: Conversations, tenant: str, session_id: str) -> bool:
    session = conversations.session(session_id)
    return session is not None and session.tenant == tenant
