"""A reply of the upstream as it is put together from what passes by: the one accumulator of every protocol.

The files beside this one read a protocol's events and bodies into it. Knows no protocol and no store.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.model import Message
from openclaw_rl.policy.dialects import ToolCall
from openclaw_rl.policy.reply import message_of


@dataclass(slots=True)
class _Call:
    id: str
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """One of the replies to a request."""

    text: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    finish_reason: str = ""
    """In the words of Chat Completions where it has one; empty until the reply is whole."""
    _calls: list[_Call] = field(default_factory=list)
    _slots: dict[Any, _Call] = field(default_factory=dict)

    def call(self, slot: object, *, id: Any = None, name: Any = None, arguments: Any = None) -> None:
        """A piece of the call in `slot`; another id there is another call, since some servers count none."""
        begun = self._slots.get(slot)
        if begun is None or (isinstance(id, str) and id and begun.id and id != begun.id):
            begun = self._slots[slot] = _Call("")
            self._calls.append(begun)
        if isinstance(id, str) and not begun.id:
            begun.id = id
        begun.name += _texts(name)
        begun.arguments += _texts(arguments)

    def has_call(self, slot: object) -> bool:
        return slot in self._slots

    def say(self, text: Any) -> None:
        self.text += _texts(text)

    def think(self, thought: Any) -> None:
        self.thought += _texts(thought)

    def finish(self, reason: Any) -> None:
        self.finish_reason = _text(reason) or self.finish_reason

    @property
    def message(self) -> Message:
        calls = [ToolCall(c.id, "".join(c.name), "".join(c.arguments) or "{}") for c in self._calls]
        return message_of("".join(self.text), "".join(self.thought), calls)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)


@dataclass(slots=True)
class Reply:
    """What the upstream said of one request so far."""

    wanted: int
    """How many choices were asked for."""
    response_id: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None
    failed: bool = False
    """The upstream itself reported an error within its answer."""
    choices: defaultdict[int, Choice] = field(default_factory=lambda: defaultdict(Choice))

    def choice(self, index: int) -> Choice:
        """The choice of that number; one that nobody asked for is forgotten."""
        return self.choices[index] if 0 <= index < self.wanted else Choice()

    @property
    def is_whole(self) -> bool:
        """Whether all replies have come to their end."""
        return sum(bool(choice.finish_reason) for choice in self.choices.values()) >= self.wanted

    def note(self, about: Mapping[str, Any]) -> None:
        """What an event or body says of the answer as a whole; some say it again with every event."""
        self.response_id = self.response_id or _text(about.get("id"))
        self.model = self.model or _text(about.get("model"))
        if isinstance(usage := about.get("usage"), dict) and _can_be_kept(usage):
            self.usage = {**(self.usage or {}), **usage}


def _can_be_kept(usage: Mapping[str, Any]) -> bool:
    """Whether JSON has a form for it; Python reads 1e999 and halves of surrogate pairs."""
    try:
        json.dumps(usage, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _text(value: Any) -> str:
    """A name, fit for a column: without halves of surrogate pairs."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []
