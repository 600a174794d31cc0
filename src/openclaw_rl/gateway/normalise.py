"""What of a request's messages counts when conversations are compared, and the hashes that compare them.

Clients do not send back byte for byte what they got: call ids, argument spacing, thinking, null content
and injected context change. Knows no session and no store; raw messages are kept beside the hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_rl import wrappings
from openclaw_rl.gateway import openclaw
from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import text_of

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages that count, as the client sent them, and a hash after each.

    Left out are system and developer messages, injected context, what a client says in both roles, and a
    user's message that stands there again right after itself: clients that try again may keep it once for
    each try. Conversations of two persons have no hash in common.
    """

    messages: tuple[Message, ...]
    hashes: tuple[str, ...]
    person: str = ""
    """Whose conversation it is, as far as the client says so."""

    @classmethod
    def of(cls, messages: Sequence[Message], person: str = "") -> Conversation:
        counting: list[Message] = []
        hashes: list[str] = []
        so_far, before = _start(person), None
        for message in _counting(messages):
            form = normal_form(message)
            if form == before and message["role"] == "user":
                continue
            counting.append(message)
            hashes.append(so_far := _extend(so_far, form))
            before = form
        return cls(tuple(counting), tuple(hashes), person)

    @property
    def request_hash(self) -> str:
        return self.hashes[-1] if self.hashes else _start(self.person)

    @property
    def after_last_reply(self) -> tuple[Message, ...]:
        """What was said since the newest reply."""
        spoken = [position for position, m in enumerate(self.messages) if m["role"] == "assistant"]
        return self.messages[spoken[-1] + 1 :] if spoken else self.messages

    @property
    def stamped(self) -> bool:
        """Whether people's messages in it have a time stamp (see `openclaw.stamps_people`)."""
        return openclaw.stamps_people(
            text_of(message.get("content")) for message in self.messages if message["role"] == "user"
        )

    def hash_with(self, reply: Message) -> str:
        """What the prefix of a request that continues from `reply` will hash to."""
        return _extend(self.request_hash, normal_form(reply))

    def reply_hash(self, reply: Message) -> str:
        """What tells `reply` from others wherever it stands; empty for one that says nothing.

        Calls count with their ids, which tell most of them apart.
        """
        role, text, calls = normal_form(reply)
        ids = [bare_id(call.get("id")) for call in reply.get("tool_calls") or ()]
        return _extend(_start(self.person), [role, text, calls, ids]) if text or ids else ""

    def continuations(self) -> Iterator[tuple[str, int]]:
        """Where this request may continue from, longest first.

        Yields the hash of each prefix that ends in an assistant message followed by somebody else's, with
        the number of messages in that prefix.
        """
        answered = False
        for position in range(len(self.messages) - 1, -1, -1):
            if self.messages[position]["role"] != "assistant":
                answered = True
            elif answered:
                yield self.hashes[position], position + 1


def bare_id(given: Any) -> str:
    """A call's id as every client keeps it: its letters and digits."""
    return _NOT_IN_IDS.sub("", str(given or ""))


def normal_form(message: Message) -> list[Any]:
    """The role, the text and the calls of a message, as they are compared."""
    text = text_of(message.get("content")).rstrip()
    if message["role"] == "user":
        text = wrappings.bare(text)
    elif message["role"] == "assistant":
        text = _without_thinking(text)
    calls = [_normal_call(call.get("function") or {}) for call in message.get("tool_calls") or ()]
    return [message["role"], text, calls]


def _counting(messages: Sequence[Message]) -> Iterator[Message]:
    spoken = [message for message in messages if _counts(message)]
    shown = {
        position
        for position in range(len(spoken) - 1)
        if spoken[position]["role"] == "user"
        and spoken[position + 1]["role"] == "assistant"
        and wrappings.is_shown(*(text_of(spoken[position + n].get("content")) for n in (0, 1)))
    }
    return (m for position, m in enumerate(spoken) if not shown & {position, position - 1})


def _counts(message: Message) -> bool:
    if message["role"] in ("system", "developer"):
        return False
    return message["role"] != "user" or not wrappings.is_injected(text_of(message.get("content")))


def _start(person: str) -> str:
    return hashlib.sha256(f"conversation{person}".encode()).hexdigest()


def _extend(so_far: str, form: list[Any]) -> str:
    return hashlib.sha256(f"{so_far}\n{json.dumps(form, sort_keys=True)}".encode()).hexdigest()


def _without_thinking(text: str) -> str:
    spoken, position = [], 0
    while (start := text.find(_THINK_OPEN, position)) >= 0:
        spoken.append(text[position:start])
        end = text.find(_THINK_CLOSE, start)
        position = end + len(_THINK_CLOSE) if end >= 0 else len(text)
    spoken.append(text[position:])
    # Templates that open the thought in the prompt leave only its end in the reply.
    return "".join(spoken).rpartition(_THINK_CLOSE)[2].strip()


def _normal_call(function: dict[str, Any]) -> list[Any]:
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = arguments.strip()
    return [function.get("name"), arguments or {}]
