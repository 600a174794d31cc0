"""Anthropic's Messages passing by: what a request says that is recorded, and what answers say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from openclaw_rl.gateway.bodies import validate
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.protocols.messages import MessagesRequest
from openclaw_rl.gateway.upstream.media import blocks_in_words
from openclaw_rl.gateway.upstream.reply import Choice, Reply

_READ = frozenset(
    "model messages system tools max_tokens stream metadata session_id turn_type session_done".split()
)
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}


def read_request(body: Mapping[str, Any]) -> CompletionRequest:
    """Raises ApiError when it cannot be read."""
    read = {name: value for name, value in body.items() if name in _READ}
    if isinstance(read.get("messages"), list):
        read["messages"] = [blocks_in_words(message) for message in read["messages"]]
    return validate(MessagesRequest, read).request(read)


def read_event(reply: Reply, event: Mapping[str, Any]) -> None:
    """An event of a stream, or a plain body."""
    kind = event.get("type")
    choice = reply.choices[0]
    if kind == "error":
        reply.failed = True
    elif kind == "message_start":
        reply.note(event.get("message") or {})
    elif kind == "content_block_start":
        _read_block(choice, event.get("index"), event.get("content_block") or {})
    elif kind == "content_block_delta":
        _read_delta(choice, event.get("index"), event.get("delta") or {})
    elif kind == "message_delta":
        reply.note({"usage": event.get("usage")})
        _finish(choice, event.get("delta") or {})
    elif kind == "message":
        reply.note(event)
        for index, block in enumerate(event.get("content") or ()):
            _read_block(choice, index, block)
        _finish(choice, event)


def _read_block(choice: Choice, index: Any, block: Mapping[str, Any]) -> None:
    """A block as it begins in a stream, or whole."""
    if block.get("type") == "tool_use":
        given = block.get("input")
        arguments = json.dumps(given, ensure_ascii=False) if given else None
        choice.call(index, id=block.get("id"), name=block.get("name"), arguments=arguments)
    elif block.get("type") == "text":
        choice.say(block.get("text"))
    elif block.get("type") == "thinking":
        choice.think(block.get("thinking"))


def _read_delta(choice: Choice, index: Any, delta: Mapping[str, Any]) -> None:
    if delta.get("type") == "input_json_delta":
        # Hosted tools stream their input in the same form; only calls that the caller makes are kept.
        if choice.has_call(index):
            choice.call(index, arguments=delta.get("partial_json"))
    elif delta.get("type") == "text_delta":
        choice.say(delta.get("text"))
    elif delta.get("type") == "thinking_delta":
        choice.think(delta.get("thinking"))


def _finish(choice: Choice, said: Mapping[str, Any]) -> None:
    reason = said.get("stop_reason")
    choice.finish(_FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None)
