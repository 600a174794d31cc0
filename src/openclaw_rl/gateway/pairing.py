"""Which messages are the next state of which turn: what is real among the new ones, retries and edits.

Works on a request that was matched to the turn it continues. Knows neither how it was matched nor what
the messages will be judged to mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.gateway import openclaw
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.model import Message, Turn, TurnState
from openclaw_rl.policy.chat_template import text_of
from openclaw_rl.store.conversations import Conversations

SUPERSEDED_BY_RETRY = "the same request was sent again"
NOT_CHOSEN = "the conversation went on from another answer to the same request"


def pair(
    conversations: Conversations,
    conversation: Conversation,
    session_id: str,
    parent: Turn | None,
    new_messages: Sequence[Message],
) -> None:
    """Record what a main request says about the turns before it.

    `new_messages` are those after the parent's reply. The parent gets its next state once; a request that
    starts from the same parent again is a retry or an edit, and speaks of the reply that it replaces.
    """
    siblings = conversations.siblings(session_id=session_id, parent_id=parent.id if parent else None)
    retried = [turn for turn in siblings if turn.request_hash == conversation.request_hash]
    for turn in retried:
        conversations.supersede(turn.id, SUPERSEDED_BY_RETRY)
    real = real_messages(new_messages)
    # Without a parent nothing is shared: a session's new first message may be a new conversation.
    if parent is None or retried or not real:
        return
    if siblings:
        # With a reply among the new messages the client did not edit: it goes on from a reply that is not
        # ours, or that it altered.
        goes_on = any(message["role"] == "assistant" for message in new_messages)
        # Of several choices nobody can say which one the edit speaks of.
        only_one = sum(_is_open_answer(turn, siblings[0].request_hash) for turn in siblings) == 1
        if siblings[0].state is TurnState.WAITING_NEXT_STATE and only_one and not goes_on:
            conversations.add_next_state(siblings[0].id, "edit", real)
    elif not _has_next_state(conversations, parent):
        conversations.add_next_state(parent.id, "conversation", real)
        _put_aside_other_choices(conversations, parent)


def _put_aside_other_choices(conversations: Conversations, chosen: Turn) -> None:
    """Nothing was said about the other answers to the request that `chosen` answered."""
    answers = conversations.siblings(session_id=chosen.session_id, parent_id=chosen.parent_id)
    for turn in answers:
        if turn.id != chosen.id and _is_open_answer(turn, chosen.request_hash):
            conversations.supersede(turn.id, NOT_CHOSEN)


def _is_open_answer(turn: Turn, request_hash: str) -> bool:
    return turn.request_hash == request_hash and turn.state is TurnState.WAITING_NEXT_STATE


def _has_next_state(conversations: Conversations, turn: Turn) -> bool:
    """True when an earlier request already followed this turn, though its own reply is not stored (yet)."""
    return any(state.source == "conversation" for state in conversations.next_states(turn.id))


def real_messages(new_messages: Sequence[Message]) -> list[Message]:
    """What people and tools said directly after a reply.

    Left out are messages that no person wrote, with what was answered to them. Ends before the next reply,
    which may be another model's or one that was cut off: what follows it speaks of that one.
    """
    real: list[Message] = []
    unattended = False
    for message in new_messages:
        if message["role"] == "user":
            unattended = openclaw.unattended_message(text_of(message.get("content"))) is not None
        if unattended:
            continue
        if message["role"] == "assistant":
            break
        real.append(message)
    return real
