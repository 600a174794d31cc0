"""OpenAI's Responses passing by: what a request says that is recorded, and what answers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openclaw_rl.gateway.bodies import validate
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.errors import ApiError, bad_request
from openclaw_rl.gateway.protocols.responses import ResponsesRequest
from openclaw_rl.gateway.upstream.media import items_in_words
from openclaw_rl.gateway.upstream.reply import Choice, Reply
from openclaw_rl.model import Turn

_READ = frozenset(
    "model input instructions previous_response_id conversation background prompt tools stream metadata "
    "user prompt_cache_key session_id turn_type session_done".split()
)
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class BackgroundError(ApiError):
    """A reply that comes later, by another request, would never be recorded."""

    def __init__(self) -> None:
        super().__init__(
            400,
            "background: not passed on, since its reply could not be recorded; stream it instead",
            param="background",
        )


def read_request(body: Mapping[str, Any], answered: Callable[[str], Turn | None]) -> CompletionRequest:
    """`answered` finds the caller's turn that a response id names. Raises ApiError when it cannot be read."""
    read = {name: value for name, value in body.items() if name in _READ}
    if isinstance(read.get("input"), list):
        read["input"] = items_in_words(read["input"])
    given = validate(ResponsesRequest, read)
    if given.background:
        raise BackgroundError
    if given.previous_response_id is None:
        return given.request(read, None)
    previous = answered(given.previous_response_id)
    if previous is None:
        raise bad_request("it continues a response that was not recorded here", "previous_response_id")
    return given.request(read, previous)


def read_event(reply: Reply, event: Mapping[str, Any]) -> None:
    """An event of a stream, or a plain body."""
    kind = event.get("type")
    if event.get("object") == "response":
        _read_response(reply, event)
    elif kind in _ENDS:
        _read_response(reply, event.get("response") or {})
    elif kind == "response.created":
        reply.note({**(event.get("response") or {}), "usage": None})
    elif kind == "response.output_text.delta":
        reply.choices[0].say(event.get("delta"))  # of use only if the end never comes
    elif kind == "error":
        reply.failed = True


def _read_response(reply: Reply, response: Mapping[str, Any]) -> None:
    """A whole response; it holds again all that was streamed."""
    reply.note(response)
    choice = reply.choices[0] = Choice()
    for item in response.get("output") or ():
        if item.get("type") == "message":
            for part in item.get("content") or ():
                choice.say(part.get("text") or part.get("refusal"))
        elif item.get("type") == "reasoning":
            for part in item.get("content") or item.get("summary") or ():
                choice.think(part.get("text"))
        elif item.get("type") == "function_call":
            call_id = item.get("call_id")
            choice.call(call_id, id=call_id, name=item.get("name"), arguments=item.get("arguments"))
    status = response.get("status")
    if status == "completed":
        choice.finish("tool_calls" if choice.has_calls else "stop")
    elif status == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        choice.finish("length" if reason == "max_output_tokens" else reason or status)
    else:
        reply.failed = True
