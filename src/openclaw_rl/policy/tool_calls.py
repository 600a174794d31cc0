"""Tool calls in the text of a reply: the form with a JSON object inside `<tool_call>` tags.

It is the form of Hermes and Qwen models and of `chat_template.TOOLS_PREAMBLE`. The splitter reads text
piece by piece, so a stream and a whole reply are read by the same code. A block that is no valid call
stays visible text. Knows no tokens and no HTTP.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """A JSON object, as text."""


Part = str | ToolCall


class ToolCallSplitter:
    """Splits one reply into visible text and calls as its pieces come.

    Text is held back while it may belong to a call: from the first character that could begin an opening
    tag, and the white space before it. White space next to a call is not shown.
    """

    def __init__(self) -> None:
        self._held = ""
        self._after_call = False

    def feed(self, text: str) -> list[Part]:
        """Add text; returns the parts that are now certain, in order."""
        self._held += text
        parts: list[Part] = []
        while (start := self._held.find(OPEN)) >= 0:
            end = self._held.find(CLOSE, start)
            if end < 0:
                self._show(parts, len(self._held[:start].rstrip()))
                return parts
            self._take_block(parts, start, end, end + len(CLOSE))
        self._show(parts, _certain(self._held))
        return parts

    def finish(self) -> list[Part]:
        """The rest once the reply has ended. A last call may lack its closing tag."""
        parts: list[Part] = []
        while (start := self._held.find(OPEN)) >= 0:
            self._take_block(parts, start, len(self._held), len(self._held))
        if self._held.strip() or not self._after_call:
            self._show(parts, len(self._held))
        self._held = ""
        return parts

    def _take_block(self, parts: list[Part], start: int, end: int, after: int) -> None:
        call = _read_call(self._held[start + len(OPEN) : end])
        if call is None:
            # The tag was only text; what follows it is looked at anew.
            self._show(parts, start + len(OPEN))
            return
        rest = self._held[after:]
        self._show(parts, len(self._held[:start].rstrip()))
        parts.append(call)
        self._held, self._after_call = rest, True

    def _show(self, parts: list[Part], length: int) -> None:
        visible, self._held = self._held[:length], self._held[length:]
        if self._after_call:
            visible = visible.lstrip()
        if visible:
            parts.append(visible)
            self._after_call = False


def parse(text: str) -> tuple[str, list[ToolCall]]:
    """The visible text of a whole reply and its calls, in order."""
    splitter = ToolCallSplitter()
    return collect([*splitter.feed(text), *splitter.finish()])


def collect(parts: Iterable[Part]) -> tuple[str, list[ToolCall]]:
    texts, calls = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        else:
            calls.append(part)
    return "".join(texts), calls


def _certain(text: str) -> int:
    """How much of `text` can be shown although more will follow."""
    length = max(size for size in range(len(OPEN)) if text.endswith(OPEN[:size]))
    return len(text[: len(text) - length].rstrip())


def _read_call(block: str) -> ToolCall | None:
    try:
        # Models write raw line breaks inside JSON strings, so control characters are let through.
        call = json.loads(block, strict=False, parse_constant=_refuse_constant)
        arguments = call.get("arguments", {}) if isinstance(call, dict) else None
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False, parse_constant=_refuse_constant)
        written = json.dumps(arguments, ensure_ascii=False)
        written.encode()  # a lone surrogate could not be sent
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    return ToolCall(f"call_{uuid.uuid4().hex[:24]}", call["name"], written)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
