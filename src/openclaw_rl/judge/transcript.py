"""The words of messages as a judge should read them.

Takes off what a client wraps around a user's words (see `wrappings`), finds the request that a turn
answered, and spells out tool calls. Judges nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from openclaw_rl import wrappings
from openclaw_rl.model import Message, Turn


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as it is compared: `arguments` is JSON with sorted keys, or the text that was no JSON."""

    name: str
    arguments: str
    id: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        return self.name, self.arguments


def text_of(message: Message) -> str:
    """A message's text; parts that are not text are named in brackets."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_text_of_part(part) for part in content)


def words_of(message: Message) -> str:
    """What was said: for a user's message without the client's wrapping, otherwise the text as it is."""
    text = text_of(message)
    return wrappings.words(text) if message.get("role") == "user" else text


def is_conversation(message: Message) -> bool:
    """False for system prompts and for context that the client injects for the model alone."""
    if message.get("role") in ("system", "developer"):
        return False
    return not wrappings.is_injected(text_of(message))


def request_of(turn: Turn) -> str:
    """The user's words that the turn answered; empty if there were none."""
    for message in reversed(turn.messages):
        if message.get("role") == "user" and is_conversation(message) and (words := words_of(message)):
            return words
    return ""


def calls_of(message: Message) -> list[ToolCall]:
    """The tool calls of an assistant's message, in order."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        found.append(
            ToolCall(
                str(function.get("name", "")), _canonical(function.get("arguments")), str(call.get("id", ""))
            )
        )
    return found


def _canonical(arguments: object) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except json.JSONDecodeError:
            return str(arguments)
    return json.dumps(arguments or {}, sort_keys=True, ensure_ascii=False)


def _text_of_part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        return f"[{part.get('type', 'content')}]"
    return ""
