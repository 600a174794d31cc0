"""Images, files and other things that are no words: recorded as a line that names them.

A conversation sends all its images again with each request, so they would be stored many times over; and
no part of this project reads them. Knows the content forms of three protocols and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_SHOWN = 12
_BLOCKS_OF_ASSISTANTS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})


def message_in_words(message: Any) -> Any:
    """A Chat Completions message; what is wrong with its form is left to be found later."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = message["content"]
    if message.get("role") == "assistant":
        return {**message, "content": [part for part in parts if _has_words(part)]}
    return {**message, "content": [_in_words(part) for part in parts]}


def blocks_in_words(message: Any) -> Any:
    """A Messages message: its content blocks, and those of the tool results among them."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    blocks = message["content"]
    if message.get("role") == "assistant":
        kept = [block for block in blocks if _kind(block) in _BLOCKS_OF_ASSISTANTS]
        return {**message, "content": kept}
    return {**message, "content": [_result_in_words(block) for block in blocks]}


def items_in_words(items: list[Any]) -> list[Any]:
    """Input items of Responses. What a hosted tool did is left out: the upstream's answer held it too."""
    kept = [item for item in items if _kind(item, "message") in _ITEMS]
    return [_item_in_words(item) for item in kept]


def _item_in_words(item: dict[str, Any]) -> dict[str, Any]:
    made = dict(item)
    for field in ("content", "output"):
        if isinstance(made.get(field), list) and _kind(item, "message") != "reasoning":
            made[field] = [_in_words(part) for part in made[field]]
    return made


def _result_in_words(block: Any) -> Any:
    if _kind(block) != "tool_result":
        return _in_words(block)
    if not isinstance(block.get("content"), list):
        return block
    return {**block, "content": [_in_words(part) for part in block["content"]]}


def _in_words(part: Any) -> Any:
    if not isinstance(part, dict) or _has_words(part):
        return part
    digest = hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()
    return {"type": "text", "text": f"[{_kind(part, 'content')}, not kept: sha256 {digest[:_SHOWN]}]"}


def _has_words(part: Any) -> bool:
    if isinstance(part, Mapping):
        return isinstance(part.get("text"), str) or isinstance(part.get("refusal"), str)
    return isinstance(part, str)


def _kind(part: Any, otherwise: str = "") -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else otherwise
