"""One turn's result in OpenAI's two forms: the chunks of a stream and the plain body.

Both are written from the same deltas and the same Completion and agree. Nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_rl.gateway.completion import Completion, Delta, RunningTurn, TokenLogprob
from openclaw_rl.gateway.errors import ENGINE_FAILED, error_body

DONE = b"data: [DONE]\n\n"
_UNFINISHED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk and every body begins with."""

    turn_id: str
    created: int
    model: str
    version: int
    logprobs: bool
    """Whether the client asked for the tokens' log-probs."""

    @classmethod
    def of(cls, running: RunningTurn, *, logprobs: bool) -> Head:
        plan = running.plan
        return cls(plan.turn_id, int(plan.created_at), plan.model, running.version, logprobs)

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.turn_id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"policy-{self.version}",
        }


def role_chunk(head: Head) -> bytes:
    """The first chunk, sent before any token is there."""
    return _chunk(head, {"role": "assistant", "content": ""})


def idle_chunk(head: Head) -> bytes:
    """No text, for clients that give up on a silent stream; they do not count comments as life."""
    return _chunk(head, {"content": ""})


def delta_chunk(head: Head, delta: Delta, call_index: int) -> bytes:
    """A piece of text or a whole tool call; `call_index` counts the calls before it."""
    if isinstance(delta.part, str):
        return _chunk(head, {"content": delta.part}, delta.tokens)
    call = {
        "index": call_index,
        "id": delta.part.id,
        "type": "function",
        "function": {"name": delta.part.name, "arguments": delta.part.arguments},
    }
    return _chunk(head, {"tool_calls": [call]}, delta.tokens)


def final_chunks(head: Head, completion: Completion) -> bytes:
    """The finish reason, then the usage with no choices, then the end of the stream."""
    rest = completion.tokens[len(completion.tokens) - completion.last_tokens :]
    usage = {**head.fields("chat.completion.chunk"), "choices": [], "usage": _usage(completion)}
    return _chunk(head, {}, rest, completion.finish_reason) + _event(usage) + DONE


def error_chunk() -> bytes:
    return _event(error_body(ENGINE_FAILED, "server_error", code="server_error"))


def plain_body(head: Head, completion: Completion) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": completion.reply,
        "logprobs": _logprobs(head, completion.tokens),
        "finish_reason": completion.finish_reason,
    }
    return {**head.fields("chat.completion"), "choices": [choice], "usage": _usage(completion)}


def _chunk(
    head: Head,
    delta: dict[str, Any],
    tokens: Sequence[TokenLogprob] = (),
    finish_reason: str | None = None,
) -> bytes:
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": _logprobs(head, tokens) if tokens else None,
        "finish_reason": finish_reason,
    }
    return _event({**head.fields("chat.completion.chunk"), "choices": [choice]})


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _usage(completion: Completion) -> dict[str, int]:
    sampled = len(completion.tokens)
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": completion.prompt_tokens + sampled,
    }


def _logprobs(head: Head, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    if not head.logprobs:
        return None
    return {
        "content": [
            {
                "token": token.text,
                "logprob": token.logprob,
                # A token that is part of a character has bytes that its text does not tell.
                "bytes": None if _UNFINISHED in token.text else list(token.text.encode()),
                "top_logprobs": [],
            }
            for token in tokens
        ],
        "refusal": None,
    }
