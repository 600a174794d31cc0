"""Answers of the server as replies: what a client of each protocol takes out of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2

from openclaw_rl.evals.session_bench.script import Call, Reply


def reply_of(response: httpx2.Response, path: str) -> Reply:
    """The reply in a finished response; `path` says in which protocol."""
    if path == "/v1/messages":
        return _of_messages(response.json())
    if path == "/v1/responses":
        return _of_responses(response.json())
    if response.headers["content-type"].startswith("text/event-stream"):
        return _of_chat(_put_together(response.text))
    return _of_chat(response.json()["choices"][0]["message"])


def _of_chat(message: dict[str, Any]) -> Reply:
    calls = tuple(
        _call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    return Reply(message.get("content") or "", calls, message.get("reasoning_content") or "")


def _put_together(stream: str) -> dict[str, Any]:
    """One message from the chunks of a stream."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for delta in _deltas(stream):
        for field in ("content", "reasoning_content"):
            message[field] += delta.get(field) or ""
        for piece in delta.get("tool_calls") or ():
            if piece["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({"id": "", "function": {"name": "", "arguments": ""}})
            call = message["tool_calls"][piece["index"]]
            call["id"] += piece.get("id") or ""
            for field, text in piece["function"].items():
                call["function"][field] += text or ""
    return message


def _deltas(stream: str) -> Iterator[dict[str, Any]]:
    for line in stream.splitlines():
        if line.startswith("data: {"):
            yield from (choice["delta"] for choice in json.loads(line[6:])["choices"])


def _of_messages(body: dict[str, Any]) -> Reply:
    blocks = body["content"]
    thoughts = [block for block in blocks if block["type"] == "thinking"]
    return Reply(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        tuple(Call(b["name"], b["input"], b["id"]) for b in blocks if b["type"] == "tool_use"),
        "".join(block["thinking"] for block in thoughts),
        signature="".join(block["signature"] for block in thoughts),
    )


def _of_responses(body: dict[str, Any]) -> Reply:
    items = body["output"]
    return Reply(
        "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"]),
        tuple(_call(i["call_id"], i["name"], i["arguments"]) for i in items if i["type"] == "function_call"),
        "".join(p["text"] for i in items if i["type"] == "reasoning" for p in i.get("content") or ()),
        response_id=body["id"],
    )


def _call(call_id: str, name: str, arguments: str) -> Call:
    return Call(name, json.loads(arguments), call_id)
