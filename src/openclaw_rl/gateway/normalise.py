"""What of a request's messages counts when conversations are compared, and the hashes that compare them.

Clients do not send back byte for byte what they got: call ids, argument spacing, thinking, null content
and the runtime line change. Knows no session and no store; raw messages are kept beside the hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_rl.gateway import openclaw
from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import text_of

_EMPTY = hashlib.sha256(b"conversation").hexdigest()
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages that count, as the client sent them, and a hash after each.

    Left out are system and developer messages, injected context, and a user's message that stands there
    again right after itself: clients that try again may keep it once for each try.
    """

    messages: tuple[Message, ...]
    hashes: tuple[str, ...]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Conversation:
        counting: list[Message] = []
        hashes: list[str] = []
        before: list[Any] = []
        for message in filter(_counts, messages):
            form = _normal_form(message)
            if form == before and message["role"] == "user":
                continue
            counting.append(message)
            hashes.append(_extend(hashes[-1] if hashes else _EMPTY, form))
            before = form
        return cls(tuple(counting), tuple(hashes))

    @property
    def request_hash(self) -> str:
        return self.hashes[-1] if self.hashes else _EMPTY

    def hash_with(self, reply: Message) -> str:
        """What the prefix of a request that continues from `reply` will hash to."""
        return _extend(self.request_hash, _normal_form(reply))

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


def _counts(message: Message) -> bool:
    if message["role"] in ("system", "developer"):
        return False
    return message["role"] != "user" or not openclaw.is_internal_context(text_of(message.get("content")))


def _extend(so_far: str, form: list[Any]) -> str:
    return hashlib.sha256(f"{so_far}\n{json.dumps(form, sort_keys=True)}".encode()).hexdigest()


def _normal_form(message: Message) -> list[Any]:
    text = text_of(message.get("content")).rstrip()
    if message["role"] == "user":
        text = openclaw.without_runtime_line(text).rstrip()
    elif message["role"] == "assistant":
        text = _without_thinking(text)
    calls = [_normal_call(call.get("function") or {}) for call in message.get("tool_calls") or ()]
    return [message["role"], text, calls]


def _without_thinking(text: str) -> str:
    while (start := text.find(_THINK_OPEN)) >= 0:
        end = text.find(_THINK_CLOSE, start)
        text = text[:start] + (text[end + len(_THINK_CLOSE) :] if end >= 0 else "")
    # Templates that open the thought in the prompt leave only its end in the reply.
    return text.rpartition(_THINK_CLOSE)[2].strip()


def _normal_call(function: dict[str, Any]) -> list[Any]:
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = arguments.strip()
    return [function.get("name"), arguments or {}]
