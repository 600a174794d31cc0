"""Anthropic's Messages: the events of a stream and the plain body."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openclaw_rl.gateway.answer import Head, compact
from openclaw_rl.gateway.completion import Completion, Delta
from openclaw_rl.gateway.errors import ENGINE_FAILED, anthropic_error_body
from openclaw_rl.policy.dialects import ToolCall
from openclaw_rl.policy.reply import Part, Thought

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesAnswer:
    def __init__(self, head: Head) -> None:
        self._head = head
        self._index = -1  # of the newest content block
        self._open: type[Part] | None = None  # what kind of block is open

    def body(self, completions: Sequence[Completion]) -> dict[str, Any]:
        (completion,) = completions
        content = [self._whole(part) for part in completion.parts]
        return {**self._message(len(completion.tokens)), "content": content, **_stop(completion)}

    def opening(self) -> bytes:
        return _event("message_start", message=self._message(0))

    def idle(self) -> bytes:
        return _event("ping")

    def delta(self, choice: int, delta: Delta) -> bytes:
        part = delta.part
        events = b""
        if isinstance(part, ToolCall) or not (self._open and isinstance(part, self._open)):
            events += self._close() + self._begin(part)
        if isinstance(part, str):
            return events + self._grow(type="text_delta", text=part)
        if isinstance(part, Thought):
            return events + self._grow(type="thinking_delta", thinking=part.text)
        return events + self._grow(type="input_json_delta", partial_json=part.arguments)

    def ending(self, choice: int, completion: Completion) -> bytes:
        usage = {"output_tokens": len(completion.tokens)}
        return self._close() + _event("message_delta", delta=_stop(completion), usage=usage)

    def closing(self, completions: Sequence[Completion]) -> bytes:
        return _event("message_stop")

    def failure(self) -> bytes:
        return _named("error", anthropic_error_body(ENGINE_FAILED, "api_error"))

    def _message(self, sampled: int) -> dict[str, Any]:
        return {
            "id": f"msg_{self._head.turn_id}",
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": self._head.prompt_tokens,
                "output_tokens": sampled,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }

    def _whole(self, part: Part) -> dict[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        if isinstance(part, Thought):
            return {"type": "thinking", "thinking": part.text, "signature": self._head.turn_id}
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": json.loads(part.arguments)}

    def _begin(self, part: Part) -> bytes:
        self._open = type(part)
        self._index += 1
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        block = {name: empty.get(name, value) for name, value in self._whole(part).items()}
        return _event("content_block_start", index=self._index, content_block=block)

    def _grow(self, **delta: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        # Clients send a thought back only with a signature; ours names the turn.
        signed = self._open is Thought
        self._open = None
        signature = self._grow(type="signature_delta", signature=self._head.turn_id) if signed else b""
        return signature + _event("content_block_stop", index=self._index)


def _stop(completion: Completion) -> dict[str, Any]:
    if completion.stopped_by and completion.finish_reason == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": completion.stopped_by}
    return {"stop_reason": _STOP_REASONS[completion.finish_reason], "stop_sequence": None}


def _event(kind: str, **fields: Any) -> bytes:
    return _named(kind, {"type": kind, **fields})


def _named(kind: str, body: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {compact(body)}\n\n".encode()
