"""OpenAI's Responses: the events of a stream and the plain body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openclaw_rl.gateway.answer import Head, compact, token_fields
from openclaw_rl.gateway.completion import Completion, Delta, TokenLogprob, whole_parts
from openclaw_rl.gateway.errors import ENGINE_FAILED
from openclaw_rl.policy.dialects import ToolCall
from openclaw_rl.policy.reply import Part, Thought, continues

_NOTHING = Delta("", ())
_PREFIX = "turn_"


class ResponsesAnswer:
    def __init__(self, head: Head, echo: dict[str, Any]) -> None:
        """`echo` is what a response repeats of its request."""
        self._head = head
        self._echo = echo
        self._sequence = 0
        self._told: list[Delta] = []  # as they will be in the whole response
        self._is_open = False

    def body(self, completions: Sequence[Completion]) -> dict[str, Any]:
        (completion,) = completions
        cut = completion.finish_reason == "length"
        # An answer without any item is no answer to some clients.
        told = completion.deltas or (_NOTHING,)
        output = [self._item(index, delta, "completed") for index, delta in enumerate(told)]
        if cut:
            output[-1]["status"] = "incomplete"
        return {
            **self._response("incomplete" if cut else "completed"),
            "output": output,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": _usage(completion),
        }

    def opening(self) -> bytes:
        response = self._response("in_progress")
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def idle(self) -> bytes:
        return self._event("response.in_progress", response=self._response("in_progress"))

    def delta(self, choice: int, delta: Delta) -> bytes:
        part = delta.part
        if not self._head.logprobs:  # then nobody is told the tokens, and they need not be kept
            delta = Delta(part, ())
        if isinstance(part, ToolCall):
            return self._close("completed") + self._begin(delta) + self._grow(part.arguments)
        events = b""
        if not (self._is_open and continues(self._told[-1].part, part)):
            events = self._close("completed") + self._begin(delta)
        else:
            self._told[-1:] = whole_parts([self._told[-1], delta])
        return events + self._grow(part if isinstance(part, str) else part.text, delta.tokens)

    def ending(self, choice: int, completion: Completion) -> bytes:
        begun = b"" if self._told else self._begin(_NOTHING)
        return begun + self._close("incomplete" if completion.finish_reason == "length" else "completed")

    def closing(self, completions: Sequence[Completion]) -> bytes:
        response = self.body(completions)
        return self._event(f"response.{response['status']}", response=response)

    def failure(self) -> bytes:
        error = {"code": "server_error", "message": ENGINE_FAILED}
        return self._event("response.failed", response={**self._response("failed"), "error": error})

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._head.turn_id}",
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "model": self._head.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **self._echo,
        }

    def _id(self, kind: str, index: int) -> str:
        return f"{kind}_{self._head.turn_id.removeprefix(_PREFIX)}_{index}"

    def _item(self, index: int, delta: Delta, status: str) -> dict[str, Any]:
        part = delta.part
        if isinstance(part, ToolCall):
            return {
                "id": self._id("fc", index),
                "type": "function_call",
                "status": status,
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments,
            }
        if isinstance(part, Thought):
            return {
                "id": self._id("rs", index),
                "type": "reasoning",
                "status": status,
                "summary": [],
                "content": [self._content(delta)],
            }
        return {
            "id": self._id("msg", index),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [self._content(delta)],
        }

    def _content(self, delta: Delta) -> dict[str, Any]:
        if isinstance(delta.part, Thought):
            return {"type": "reasoning_text", "text": delta.part.text}
        logprobs = self._logprobs(delta.tokens)
        return {"type": "output_text", "text": delta.part, "annotations": [], "logprobs": logprobs}

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        if not self._head.logprobs:
            return []
        return [
            {**token_fields(token), "top_logprobs": [token_fields(each) for each in token.alternatives]}
            for token in tokens
        ]

    @property
    def _place(self) -> dict[str, Any]:
        """Which item, and which content of it, an event is about."""
        index, delta = len(self._told) - 1, self._told[-1]
        place = {"item_id": self._item(index, delta, "")["id"], "output_index": index}
        return place if isinstance(delta.part, ToolCall) else {**place, "content_index": 0}

    def _begin(self, delta: Delta) -> bytes:
        self._told.append(delta)
        self._is_open = True
        index, is_call = len(self._told) - 1, isinstance(delta.part, ToolCall)
        item = self._item(index, delta, "in_progress")
        empty = {**item, "arguments": ""} if is_call else {**item, "content": []}
        added = self._event("response.output_item.added", output_index=index, item=empty)
        if is_call:
            return added
        content = {**self._content(Delta(delta.part, ())), "text": ""}
        return added + self._event("response.content_part.added", **self._place, part=content)

    def _grow(self, text: str, tokens: Sequence[TokenLogprob] = ()) -> bytes:
        return self._event(f"response.{_stem(self._told[-1].part)}.delta", tokens, **self._place, delta=text)

    def _close(self, status: str) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        told = self._told[-1]
        part, done = told.part, f"response.{_stem(told.part)}.done"
        if isinstance(part, ToolCall):
            events = self._event(done, **self._place, name=part.name, arguments=part.arguments)
        else:
            content = self._content(told)
            events = self._event(done, told.tokens, **self._place, text=content["text"])
            events += self._event("response.content_part.done", **self._place, part=content)
        index = len(self._told) - 1
        item = self._item(index, told, status)
        return events + self._event("response.output_item.done", output_index=index, item=item)

    def _event(self, kind: str, tokens: Sequence[TokenLogprob] = (), **fields: Any) -> bytes:
        if "output_text." in kind:
            fields["logprobs"] = self._logprobs(tokens)
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {compact(event)}\n\n".encode()


def _stem(part: Part) -> str:
    """What the events that tell a part are called."""
    if isinstance(part, ToolCall):
        return "function_call_arguments"
    return "reasoning_text" if isinstance(part, Thought) else "output_text"


def _usage(completion: Completion) -> dict[str, Any]:
    sampled = len(completion.tokens)
    return {
        "input_tokens": completion.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": completion.thought_tokens},
        "total_tokens": completion.prompt_tokens + sampled,
    }
