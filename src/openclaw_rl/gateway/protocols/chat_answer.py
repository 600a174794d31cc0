"""OpenAI's Chat Completions: the chunks of a stream and the plain body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openclaw_rl.gateway.answer import Head, compact, token_fields
from openclaw_rl.gateway.completion import Completion, Delta, TokenLogprob
from openclaw_rl.gateway.errors import ENGINE_FAILED, error_body
from openclaw_rl.policy.reply import Thought

DONE = b"data: [DONE]\n\n"


class ChatAnswer:
    def __init__(self, head: Head, choices: int = 1) -> None:
        self._head = head
        self._calls = [0] * choices  # sent so far, of each choice

    def body(self, completions: Sequence[Completion]) -> dict[str, Any]:
        choices = [
            {
                "index": choice,
                "message": completion.reply,
                "logprobs": self._logprobs(completion.tokens),
                "finish_reason": completion.finish_reason,
            }
            for choice, completion in enumerate(completions)
        ]
        return {**self._fields("chat.completion"), "choices": choices, "usage": _usage(completions)}

    def opening(self) -> bytes:
        first = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(choice, first) for choice in range(len(self._calls)))

    def idle(self) -> bytes:
        return self._chunk(0, {"content": ""})

    def delta(self, choice: int, delta: Delta) -> bytes:
        part = delta.part
        if isinstance(part, str):
            return self._chunk(choice, {"content": part}, delta.tokens)
        if isinstance(part, Thought):
            return self._chunk(choice, {"reasoning_content": part.text}, delta.tokens)
        call = {
            "index": self._calls[choice],
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments},
        }
        self._calls[choice] += 1
        return self._chunk(choice, {"tool_calls": [call]}, delta.tokens)

    def ending(self, choice: int, completion: Completion) -> bytes:
        rest = completion.tokens[len(completion.tokens) - completion.last_tokens :]
        return self._chunk(choice, {}, rest, completion.finish_reason)

    def closing(self, completions: Sequence[Completion]) -> bytes:
        """The usage with no choices, asked for or not, then the end: clients stop reading there."""
        usage = {**self._fields("chat.completion.chunk"), "choices": [], "usage": _usage(completions)}
        return _event(usage) + DONE

    def failure(self) -> bytes:
        return _event(error_body(ENGINE_FAILED, "server_error", code="server_error"))

    def _fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._head.turn_id}",
            "object": kind,
            "created": self._head.created,
            "model": self._head.model,
            "system_fingerprint": f"policy-{self._head.version}",
        }

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        tokens: Sequence[TokenLogprob] = (),
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish_reason,
        }
        return _event({**self._fields("chat.completion.chunk"), "choices": [choice]})

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self._head.logprobs:
            return None
        return {
            "content": [
                {**token_fields(token), "top_logprobs": [token_fields(each) for each in token.alternatives]}
                for token in tokens
            ],
            "refusal": None,
        }


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {compact(body)}\n\n".encode()


def _usage(completions: Sequence[Completion]) -> dict[str, Any]:
    """The prompt counts once, however many choices were drawn from it."""
    prompt = completions[0].prompt_tokens
    sampled = sum(len(completion.tokens) for completion in completions)
    thought = sum(completion.thought_tokens for completion in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
