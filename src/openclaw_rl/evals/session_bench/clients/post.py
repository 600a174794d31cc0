"""A request as it goes over HTTP, and the pieces of wire form that several clients share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.evals.session_bench.player import Asked, Entry

MODEL = "bench-model"


@dataclass(frozen=True, slots=True)
class Post:
    """One POST request of a client."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def chat(asked: Asked, messages: list[dict[str, Any]], **fields: Any) -> Post:
    """A request to Chat Completions; the options `headers` and `body` add to it whatever a client adds."""
    body = {"model": MODEL, "messages": messages, **fields, **asked.options.get("body", {})}
    return Post("/v1/chat/completions", body, dict(asked.options.get("headers", {})))


def tool_schemas(names: Iterable[str]) -> list[dict[str, Any]]:
    """A definition for each name; what it says does not matter to sessions."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"{name.replace('_', ' ').capitalize()}.",
                "parameters": {"type": "object", "properties": {}, "additionalProperties": True},
            },
        }
        for name in names
    ]


def transcript(entries: Iterable[Entry]) -> str:
    """The words of a history in one text, as helper prompts quote it."""
    return "\n".join(f"{entry.role.upper()}: {entry.text}" for entry in entries if entry.text)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
