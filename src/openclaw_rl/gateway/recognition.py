"""Which turn made a reply that stands in a history other than the one it was made in, or not word for word.

Clients drop old messages, replace them by a summary, write the user's words anew, cut replies or sign them.
What is left must be evidence enough: short replies are said in many conversations. Knows no session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from openclaw_rl.gateway.normalise import Conversation, bare_id, normal_form
from openclaw_rl.model import Message
from openclaw_rl.store.continuations import Continuations, PlacedTurn

_ELLIPSES = ("…", "...")
_ENDS = "!?。！？"
ENOUGH = 32
"""Bytes of text that must agree; a name of a file or a sentence is that long, a greeting is not."""
_ENOUGH_AROUND = 16
"""The same for a reply that answers the very same request, and had something added."""
_MOST_COMPARED = 32
"""Messages before a reply that are compared: the nearest tell histories apart."""
_OUR_ID = re.compile(r"call[0-9a-f]{24}")
_ID_PREFIX = re.compile(r"(?:functions|chatcmpl|toolu|tool|call|fc)*")
_RANDOM_LENGTH, _RANDOM_CHARACTERS = 16, 8
"""The random part of an id that no other call has: so long, of so many different characters."""


def find_altered(
    stored: Continuations, conversation: Conversation, length: int, tenant: str, session_id: str | None = None
) -> PlacedTurn | None:
    """The turn that answered the same request, with a reply that the client has cut, signed or spaced anew.

    The reply is the last of the first `length` messages.
    """
    if length < 2:
        return None
    sent = normal_form(conversation.messages[length - 1])
    answers = stored.asked_the_same(conversation.hashes[length - 2], tenant, session_id)
    alike = [turn for turn, ours in answers if _is_altered(sent, normal_form(ours))]
    return max(alike, key=lambda turn: (turn.is_waiting, turn.finished_at), default=None)


def find_moved(
    stored: Continuations,
    conversation: Conversation,
    length: int,
    tenant: str,
    session_id: str | None = None,
    *,
    least_before: int = 1,
) -> PlacedTurn | None:
    """The turn that gave the same reply after other messages, if enough agrees to be sure.

    In a session that the client names, a reply that was given once needs no message before it that agrees.
    Elsewhere strangers are answered in the same words: `least_before` bytes before the reply must agree,
    and with one session only. A call's id that looks random stands for the bytes but not for the message
    before; one that we made is proof by itself.
    """
    reply = conversation.messages[length - 1]
    reply_hash = conversation.reply_hash(reply)
    if not reply_hash:
        return None
    before = [normal_form(one) for one in conversation.messages[: length - 1][-_MOST_COMPARED:]]
    found = [
        (_agreeing(before, _forms(messages)), turn)
        for turn, messages in stored.replied_the_same(reply_hash, tenant, session_id)
    ]
    if not found:
        return None
    agreement, best = max(found, key=lambda one: (one[0], one[1].is_waiting, one[1].finished_at))
    calls = reply.get("tool_calls") or ()
    if any(_is_our_id(call) for call in calls):
        return best
    sessions = {turn.session_id for agreeing, turn in found if agreeing == agreement}
    told_apart = len(sessions) == 1 and (agreement > 0 or (session_id is not None and len(found) == 1))
    if not told_apart:
        return None
    if any(_is_random_id(call) for call in calls):
        return best
    enough = _size(normal_form(reply)) + agreement >= ENOUGH and (
        session_id is not None or agreement >= least_before
    )
    return best if enough else None


def _is_our_id(call: dict[str, Any]) -> bool:
    return bool(_OUR_ID.fullmatch(bare_id(call.get("id")))) and _is_random_id(call)


def _is_random_id(call: dict[str, Any]) -> bool:
    """Whether the id is more than a number and the function's name, which come again in other replies."""
    name = bare_id((call.get("function") or {}).get("name"))
    own = _ID_PREFIX.sub("", bare_id(call.get("id")), count=1)
    own = own.replace(name, "") if name else own
    is_mixed = any(letter.isdigit() for letter in own) and any(letter.isalpha() for letter in own)
    return is_mixed and len(own) >= _RANDOM_LENGTH and len(set(own)) >= _RANDOM_CHARACTERS


def _is_altered(sent: list[Any], ours: list[Any]) -> bool:
    if sent[2] != ours[2]:
        return False
    shown, whole = sent[1], ours[1]
    if shown.split() == whole.split():
        return True
    cut = shown.rstrip(".… \n")
    # One that ends with its sentence is rather another model's shorter answer.
    if len(cut.encode()) >= ENOUGH and whole.startswith(cut) and (cut == shown or shown.endswith(_ELLIPSES)):
        return cut[-1] not in _ENDS
    before, found, after = shown.partition(whole)
    on_lines_of_its_own = before[-1:] in ("", "\n") and after[:1] in ("", "\n")
    return bool(found) and len(whole.encode()) >= _ENOUGH_AROUND and on_lines_of_its_own


def _forms(messages: Sequence[Message]) -> list[list[Any]]:
    """Of a stored request's last messages, those that count."""
    return [normal_form(one) for one in Conversation.of(messages[-_MOST_COMPARED:]).messages]


def _agreeing(before: Sequence[list[Any]], theirs: Sequence[list[Any]]) -> int:
    """Bytes of text in the messages that agree, counted backwards from the reply; both in normal form."""
    total = 0
    for one, other in zip(reversed(before), reversed(theirs), strict=False):
        if one != other:
            break
        total += _size(one)
    return total


def _size(form: Sequence[Any]) -> int:
    return len(str(form[1]).encode())
