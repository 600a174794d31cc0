"""What a client makes of an answer: of the chunks of a stream, and of a plain body, in the same form."""

from __future__ import annotations

import json
from typing import Any


def events(text: str) -> list[dict[str, Any]]:
    """Those of a stream whose events have names, each of which must be its body's type."""
    found = []
    for event in text.strip().split("\n\n"):
        name, data = event.split("\n")
        body = json.loads(data.removeprefix("data: "))
        assert name == f"event: {body['type']}"
        found.append(body)
    return found


def joined(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """One choice of a stream."""
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    deltas = [choice["delta"] for choice in choices]
    return {
        "role": "".join(delta.get("role", "") for delta in deltas),
        "content": "".join(delta.get("content") or "" for delta in deltas),
        "reasoning": "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "calls": [call["function"] for delta in deltas for call in delta.get("tool_calls", [])],
        "finish": [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        "usage": [chunk["usage"] for chunk in chunks if not chunk["choices"]],
        "logprobs": [token for choice in choices for token in (choice["logprobs"] or {}).get("content", [])],
    }


def whole(body: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """One choice of a plain body."""
    choice = body["choices"][index]
    message = choice["message"]
    return {
        "role": message["role"],
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [call["function"] for call in message.get("tool_calls", [])],
        "finish": [choice["finish_reason"]],
        "usage": [body["usage"]],
        "logprobs": (choice["logprobs"] or {}).get("content", []),
    }
