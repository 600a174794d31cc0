"""Which messages are the next state of which turn: what is real among the new ones, retries and edits.

Works on a request that was matched to the turn it continues. Knows neither how it was matched nor what
the messages will be judged to mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl import wrappings
from openclaw_rl.gateway import openclaw
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import text_of
from openclaw_rl.store.continuations import Continuations, PlacedTurn
from openclaw_rl.store.conversations import Conversations

SUPERSEDED_BY_RETRY = "the same request was sent again"
NOT_KEPT = "the client went on without this reply"
NOT_CHOSEN = "the conversation went on from another answer to the same request"


class Pairing:
    """Writes down what requests say about the turns before them."""

    def __init__(self, conversations: Conversations, continuations: Continuations) -> None:
        self._conversations = conversations
        self._continuations = continuations

    def pair(
        self,
        conversation: Conversation,
        session_id: str,
        parent: PlacedTurn | None,
        length: int,
        *,
        may_be_edit: bool = True,
    ) -> None:
        """Record what a main request says about the turns before it.

        The first `length` messages end with the parent's reply. The parent gets its next state once; a
        request that starts from the same parent again is a retry or an edit, and speaks of the reply that
        it replaces. `may_be_edit` is False where the client branches off on purpose.
        """
        siblings = self._continuations.siblings(
            session_id=session_id, parent_id=parent.id if parent else None
        )
        new_messages = conversation.messages[length:]
        # With a reply among the new messages the client went on from one that is not ours, or altered ours.
        goes_on = any(message["role"] == "assistant" for message in new_messages)
        retried = [turn for turn in siblings if turn.request_hash == conversation.request_hash]
        # More was said, but not after the reply: it never reached the client's history.
        asked = set(conversation.hashes[length:-1])
        unseen = [turn for turn in siblings if turn.request_hash in asked and not goes_on]
        for turns, reason in ((retried, SUPERSEDED_BY_RETRY), (unseen, NOT_KEPT)):
            for turn in turns:
                if turn.is_waiting:
                    self._conversations.supersede(turn.id, reason)
        real = real_messages(new_messages, stamped=conversation.stamped)
        # Without a parent nothing is shared: a session's new first message may be a new conversation.
        if parent is None or retried or unseen or not real:
            return
        if siblings:
            # Of several choices nobody can say which one the edit speaks of.
            only_one = sum(_is_open_answer(turn, siblings[0].request_hash) for turn in siblings) == 1
            if siblings[0].is_waiting and only_one and may_be_edit and not goes_on:
                self._replace(siblings[0], parent, real)
        elif not self._has_next_state(parent):
            self._conversations.add_next_state(parent.id, "conversation", real)
            self._put_aside_other_choices(parent)

    def _replace(self, replaced: PlacedTurn, parent: PlacedTurn, real: list[Message]) -> None:
        """Another message stands where the request of `replaced` had one, and nobody went on from its reply.

        The message worded anew says what was wrong with that reply. Quite other words do not: then it was a
        helper's prompt that is kept in no history, or a branch, and these words are what followed the parent.
        """
        request = Conversation.of(self._continuations.messages_of(replaced.id))
        if is_reworded(request.after_last_reply, real):
            self._conversations.add_next_state(replaced.id, "edit", real)
        else:
            self._conversations.add_next_state(parent.id, "conversation", real)

    def _put_aside_other_choices(self, chosen: PlacedTurn) -> None:
        """Nothing was said about the other answers to the request that `chosen` answered."""
        answers = self._continuations.siblings(session_id=chosen.session_id, parent_id=chosen.parent_id)
        for turn in answers:
            if turn.id != chosen.id and _is_open_answer(turn, chosen.request_hash):
                self._conversations.supersede(turn.id, NOT_CHOSEN)

    def _has_next_state(self, turn: PlacedTurn) -> bool:
        """True when an earlier request followed this turn already, though its reply is not stored (yet)."""
        return any(state.source == "conversation" for state in self._conversations.next_states(turn.id))


def _is_open_answer(turn: PlacedTurn, request_hash: str) -> bool:
    return turn.request_hash == request_hash and turn.is_waiting


def is_reworded(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether the same is said in other words: half of all words are common (Dice's coefficient)."""
    one, other = _words(before), _words(after)
    return bool(one and other) and 2 * len(one & other) / (len(one) + len(other)) >= _ALIKE


def _words(messages: Sequence[Message]) -> set[str]:
    texts = (wrappings.words(text_of(message.get("content"))) for message in messages)
    return {word for text in texts for word in _WORD.findall(text.lower())}


_ALIKE = 0.5
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")
"""A word, or a character of a language that is written without spaces."""


def real_messages(new_messages: Sequence[Message], *, stamped: bool = False) -> list[Message]:
    """What people and tools said directly after a reply.

    Left out are messages that no person wrote, with what was answered to them in silence. Ends before the
    next reply that a person could see: what follows it speaks of that one. `stamped` says that people's
    messages have a time stamp here.
    """
    real: list[Message] = []
    unattended = False
    for message in new_messages:
        text = text_of(message.get("content"))
        if message["role"] == "user":
            unattended = openclaw.unattended_message(text, stamped=stamped) is not None
        if message["role"] == "assistant" and not (unattended and _is_unheard(message, text)):
            break
        if not unattended:
            real.append(message)
    return real


def _is_unheard(reply: Message, text: str) -> bool:
    """Whether a person learns nothing from an unattended run's reply: silence, or work on the way to it."""
    return openclaw.is_silent(text) or bool(reply.get("tool_calls"))
