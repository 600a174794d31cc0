"""Tool calls in the text of a reply, found while it streams.

The splitter reads text piece by piece, so a stream and a whole reply are read by the same code. A block
that is no valid call stays visible text. Knows no tokens and no HTTP; see `dialects` for the forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openclaw_rl.model import Tool
from openclaw_rl.policy.dialects import HERMES, Dialect, ToolCall

Part = str | ToolCall
_BARE_BEGINNINGS = ('{"name":', '{"type":"function"', '{"function":{', '[{"name":')
_DECISIVE = 200
"""So many characters at the start of a reply tell whether it may be a bare call."""


class ToolCallSplitter:
    """Splits one reply into visible text and calls as its pieces come.

    Text is held back while it may belong to a call: from the first character that could begin an opening
    tag, and the white space before it. White space next to a call is not shown.
    """

    def __init__(self, dialect: Dialect = HERMES, tools: Sequence[Tool] = ()) -> None:
        self._dialect = dialect
        self._tools = {str((tool.get("function") or {}).get("name")): tool for tool in tools}
        self._held = ""
        self._may_be_bare = dialect.bare
        self._after_call = False
        self.unread_bare = False
        """The reply began as a bare call, and was none."""

    def feed(self, text: str) -> list[Part]:
        """Add text; returns the parts that are now certain, in order."""
        self._held += text
        if self._may_be_bare:
            if _begins_bare(self._held):
                return []
            self._may_be_bare = False
        parts: list[Part] = []
        while (start := self._held.find(self._dialect.opening)) >= 0:
            end, after = self._end_of_block(start)
            if end < 0:
                self._show(parts, len(self._held[:start].rstrip()))
                return parts
            self._take_block(parts, start, end, after)
        self._show(parts, _certain(self._held, self._dialect.opening))
        return parts

    def finish(self) -> list[Part]:
        """The rest once the reply has ended. A last call may lack its closing tag."""
        parts: list[Part] = []
        if self._may_be_bare and self._held.strip():
            self._take_bare(parts)
        while (start := self._held.find(self._dialect.opening)) >= 0:
            self._take_block(parts, start, len(self._held), len(self._held))
        if self._held.strip() or not self._after_call:
            self._show(parts, len(self._held))
        self._held = ""
        return parts

    def _end_of_block(self, start: int) -> tuple[int, int]:
        """Where the block's inside ends and where the text goes on; -1 while that is not known."""
        opening, closing = self._dialect.opening, self._dialect.closing
        if closing is None:
            end = self._held.find(opening, start + len(opening))
            return end, end
        end = self._held.find(closing, start)
        return end, end + len(closing)

    def _take_block(self, parts: list[Part], start: int, end: int, after: int) -> None:
        inside = start + len(self._dialect.opening)
        calls = self._read(self._held[inside:end])
        if not calls:
            # The tag was only text; what follows it is looked at anew.
            self._show(parts, inside)
            return
        rest = self._held[after:]
        self._show(parts, len(self._held[:start].rstrip()))
        parts += calls
        self._held, self._after_call = rest, True

    def _take_bare(self, parts: list[Part]) -> None:
        calls = self._read(self._held)
        # An answer in JSON that nobody meant as a call must not become one.
        if calls and all(call.name in self._tools for call in calls):
            parts += calls
            self._held, self._after_call = "", True
        else:
            self.unread_bare = bool(self._tools)

    def _read(self, block: str) -> list[ToolCall]:
        try:
            return self._dialect.read(block, self._tools)
        except (ValueError, RecursionError):
            return []

    def _show(self, parts: list[Part], length: int) -> None:
        visible, self._held = self._held[:length], self._held[length:]
        if self._after_call:
            visible = visible.lstrip()
        if visible:
            parts.append(visible)
            self._after_call = False


def parse(text: str, dialect: Dialect = HERMES, tools: Sequence[Tool] = ()) -> tuple[str, list[ToolCall]]:
    """The visible text of a whole reply and its calls, in order."""
    splitter = ToolCallSplitter(dialect, tools)
    return collect([*splitter.feed(text), *splitter.finish()])


def collect(parts: Iterable[Part]) -> tuple[str, list[ToolCall]]:
    texts, calls = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        else:
            calls.append(part)
    return "".join(texts), calls


def _begins_bare(text: str) -> bool:
    start = "".join(text[:_DECISIVE].split())
    return any(start.startswith(begin) or begin.startswith(start) for begin in _BARE_BEGINNINGS)


def _certain(text: str, opening: str) -> int:
    """How much of `text` can be shown although more will follow."""
    length = max(size for size in range(len(opening)) if text.endswith(opening[:size]))
    return len(text[: len(text) - length].rstrip())
