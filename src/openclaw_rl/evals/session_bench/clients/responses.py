"""Clients of OpenAI's Responses: the whole list of items each time, or only what is new after a response's
id.

Options: `chained` (with previous_response_id), `system` (as instructions), `tools`, `thoughts` ("resend" as
reasoning items), `body` and `headers`.
"""

from __future__ import annotations

import json
from typing import Any

from openclaw_rl.evals.session_bench.clients.post import MODEL, Post, tool_schemas
from openclaw_rl.evals.session_bench.player import Asked, Entry


def post(asked: Asked) -> Post:
    options = asked.options
    body: dict[str, Any] = {"model": MODEL}
    if system := options.get("system"):
        body["instructions"] = system
    if names := options.get("tools"):
        body["tools"] = [{"type": "function", **schema["function"]} for schema in tool_schemas(names)]
    entries = asked.entries
    if options.get("chained"):
        newest = max((n for n, entry in enumerate(entries) if entry.role == "assistant"), default=None)
        if newest is not None:
            body["previous_response_id"] = entries[newest].reply.response_id
            entries = entries[newest + 1 :]
    items = [item for entry in entries for item in _items(entry, options)]
    alone = len(items) == 1 and items[0].get("role") == "user" and options.get("chained")
    body["input"] = items[0]["content"] if alone else items
    return Post("/v1/responses", body | options.get("body", {}), dict(options.get("headers", {})))


def _items(entry: Entry, options: dict[str, Any]) -> list[dict[str, Any]]:
    if entry.role == "tool":
        return [{"type": "function_call_output", "call_id": entry.call.id, "output": entry.text}]
    if entry.role != "assistant":
        return [{"role": "user", "content": entry.text}]
    items: list[dict[str, Any]] = []
    if entry.reply.thought and options.get("thoughts") == "resend":
        thought = {"type": "reasoning_text", "text": entry.reply.thought}
        items.append({"type": "reasoning", "summary": [], "content": [thought]})
    if entry.reply.text:
        content = [{"type": "output_text", "text": entry.reply.text, "annotations": []}]
        items.append({"type": "message", "role": "assistant", "content": content})
    items += [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in entry.reply.calls
    ]
    return items
