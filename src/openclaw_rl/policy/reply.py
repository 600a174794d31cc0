"""A reply's text read into what it is made of: thought, words for the user, and tool calls.

One rule for thoughts: a reply that begins with `<think>`, or whose prompt ended with it, thinks until
`</think>`; without that tag all of it is thought. Knows no tokens, no protocol and no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.model import Message, Tool
from openclaw_rl.policy.dialects import MENTION, Dialect, ToolCall
from openclaw_rl.policy.tool_calls import ToolCallSplitter

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what the model thought before it answered."""

    text: str


Part = str | Thought | ToolCall


def opens_thought(prompt: str) -> bool:
    """Whether a prompt leaves the model inside a thought, as the templates of some models do."""
    return prompt.rstrip().endswith(THINK)


class ThoughtSplitter:
    """Splits one reply into its thought and the rest, as its pieces come. White space around is dropped."""

    def __init__(self, *, inside: bool) -> None:
        self._inside = inside
        self._undecided = not inside
        self._begun = False  # a visible character of the thought was given
        self._after_thought = False
        self._held = ""

    def feed(self, text: str) -> list[Thought | str]:
        self._held += text
        if self._undecided:
            start = self._held.lstrip()
            if start.startswith(THINK):
                self._undecided, self._inside, self._held = False, True, start[len(THINK) :]
            elif THINK.startswith(start):
                return []  # not one character of an answer so far
            else:
                self._undecided = False
        parts: list[Thought | str] = []
        if self._inside:
            thought, found, rest = self._held.partition(END_THINK)
            if found:
                self._inside, self._after_thought = False, True
                self._think(parts, thought.rstrip())
                self._held = rest
            else:
                certain = len(self._held) - _begun_tag(self._held, END_THINK)
                certain = len(self._held[:certain].rstrip())
                thought, self._held = self._held[:certain], self._held[certain:]
                self._think(parts, thought)
                return parts
        self._answer(parts)
        return parts

    def finish(self) -> list[Thought | str]:
        parts: list[Thought | str] = []
        if self._inside:
            self._think(parts, self._held.rstrip())
            self._held = ""
        self._answer(parts)
        return parts

    def _think(self, parts: list[Thought | str], text: str) -> None:
        if not self._begun:
            text = text.lstrip()
        if text:
            self._begun = True
            parts.append(Thought(text))

    def _answer(self, parts: list[Thought | str]) -> None:
        text, self._held = self._held, ""
        if self._after_thought:
            text = text.lstrip()
        if text:
            self._after_thought = False
            parts.append(text)


class ReplyReader:
    """Reads one reply as its pieces come; `tools` are those that were offered, in `dialect`."""

    def __init__(self, dialect: Dialect, tools: Sequence[Tool], *, inside_thought: bool) -> None:
        self._thoughts = ThoughtSplitter(inside=inside_thought)
        self._calls = ToolCallSplitter(dialect, tools) if tools else None
        self._visible: list[str] = []

    @property
    def unread_calls(self) -> int:
        """How much of the visible text looks like a tool call and could not be read as one."""
        if self._calls is None:
            return 0
        return len(MENTION.findall("".join(self._visible))) + self._calls.unread_bare

    def feed(self, text: str) -> list[Part]:
        """Add text; returns the parts that are now certain, in order."""
        return self._split(self._thoughts.feed(text))

    def finish(self) -> list[Part]:
        """The rest once the reply has ended."""
        parts = self._split(self._thoughts.finish())
        if self._calls:
            parts += self._seen(self._calls.finish())
        return parts

    def _split(self, pieces: list[Thought | str]) -> list[Part]:
        parts: list[Part] = []
        for piece in pieces:
            if isinstance(piece, Thought):
                parts.append(piece)
            else:
                parts += self._seen(self._calls.feed(piece) if self._calls else [piece])
        return parts

    def _seen(self, parts: Sequence[str | ToolCall]) -> list[str | ToolCall]:
        self._visible += [part for part in parts if isinstance(part, str)]
        return list(parts)


def message_of(text: str, thought: str, calls: Sequence[ToolCall]) -> Message:
    """A whole reply as an assistant message in OpenAI's chat form."""
    message: Message = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["content"] = text or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def continues(before: Part, part: Part) -> bool:
    """Whether a piece goes on with the piece before it: both are text, or both are thought."""
    return type(before) is type(part) and not isinstance(part, ToolCall)


def joined(pieces: Sequence[Part]) -> Part:
    """Pieces of which each continues the one before, as one."""
    if isinstance(pieces[0], ToolCall):
        return pieces[0]
    text = "".join(piece.text if isinstance(piece, Thought) else str(piece) for piece in pieces)
    return Thought(text) if isinstance(pieces[0], Thought) else text


def _begun_tag(text: str, tag: str) -> int:
    """How many characters at the end of `text` could begin `tag`."""
    return max(size for size in range(len(tag)) if text.endswith(tag[:size]))
