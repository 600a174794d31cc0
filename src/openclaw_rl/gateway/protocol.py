"""What clients may send: the request bodies, and how raw bytes become one of them.

A field that is not named here is ignored, and null means absent. Messages and tools are checked for
their shape but kept as the client sent them. Knows no route and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from openclaw_rl.config import SamplingSettings
from openclaw_rl.gateway.errors import ApiError, bad_request
from openclaw_rl.model import Message, Sampling, Score, Tool

MAX_NESTING = 100
_SMALLEST_TOP_P = 1e-6


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class FunctionCall(Body):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class RequestedCall(Body):
    function: FunctionCall | None = None


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[str | dict[str, Any]] | None = None
    tool_calls: list[RequestedCall] | None = None


class FunctionDefinition(Body):
    name: str


class ToolDefinition(Body):
    function: FunctionDefinition


class ChatRequest(Body):
    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[ToolDefinition] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | int | str | None = None

    def refuse_unsupported(self) -> None:
        """Raise ApiError for what we would otherwise have to answer wrongly."""
        if self.n not in (None, 1):
            raise bad_request("n: this server answers with one choice; leave n out or send 1", "n")
        if self.top_logprobs:
            raise bad_request(
                "top_logprobs: only the sampled tokens' log-probs are given; leave it out or send 0",
                "top_logprobs",
            )
        if self.response_format is not None and self.response_format.get("type") != "text":
            raise bad_request(
                'response_format: structured output is not supported yet; send {"type": "text"} or nothing',
                "response_format",
            )
        if self.tool_choice not in (None, "auto", "none"):
            raise bad_request(
                "tool_choice: forced tool choice is not supported yet; send auto or none", "tool_choice"
            )

    def sampling(self, defaults: SamplingSettings, context_length: int) -> Sampling:
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        top_p = defaults.top_p if self.top_p is None else self.top_p
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Sampling(
            temperature=defaults.temperature if self.temperature is None else self.temperature,
            # OpenAI allows 0, which keeps the likeliest token alone.
            top_p=max(top_p, _SMALLEST_TOP_P),
            top_k=max(self.top_k or 0, 0),
            max_tokens=min([*(limits or [defaults.max_tokens]), context_length]),
            stop=tuple(text for text in stop if text),
            seed=self.seed,
        )


def _no_boolean(value: object) -> object:
    """Python's True equals 1, but a client that sends true means something else than a score."""
    if isinstance(value, bool):
        raise ValueError("Input should be -1, 0 or 1")  # pydantic turns it into the field's error
    return value


GivenScore = Annotated[Score, BeforeValidator(_no_boolean)]


class FeedbackRequest(Body):
    response_id: str
    score: GivenScore | None = None
    text: str | None = None


class OutcomeRequest(Body):
    score: GivenScore
    text: str | None = None


AnyBody = TypeVar("AnyBody", bound=Body)


def messages_of(body: Mapping[str, Any]) -> list[Message]:
    messages: list[Message] = body["messages"]
    return messages


def tools_of(body: Mapping[str, Any], request: ChatRequest) -> list[Tool]:
    """The tools that the policy is offered: none with tool_choice "none"."""
    tools: list[Tool] = body.get("tools") or []
    return [] if request.tool_choice == "none" else tools


async def read_body(request: Request, limit: int) -> bytes:
    """The request's bytes; raises ApiError 413 beyond `limit`, whether or not its length was announced."""
    received, chunks = 0, []
    async for chunk in request.stream():
        received += len(chunk)
        if received <= limit:
            chunks.append(chunk)
        elif received > 4 * limit:
            break  # A little more was read so that a client still sending gets to see the answer.
    if received > limit:
        raise ApiError(
            413, f"The request body is larger than {limit} bytes (server.max_body_mb).", code="body_too_large"
        )
    return b"".join(chunks)


def parse_json(raw: bytes) -> dict[str, Any]:
    """A JSON object that can be stored and answered; raises ApiError 400 for anything else."""
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        # Finds what JSON can spell but nothing downstream can hold: 1e999 and lone surrogates.
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("The request body is not valid UTF-8.") from None
    except UnicodeEncodeError:
        raise bad_request("The request body holds half of a surrogate pair, which is no character.") from None
    except json.JSONDecodeError as error:
        raise bad_request(f"The request body is not valid JSON: {error.msg} at {error.pos}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise bad_request("The request body holds a number that JSON has no form for.") from None
    if not isinstance(body, dict):
        raise bad_request("The request body must be a JSON object.")
    if _deeper_than(body, MAX_NESTING):
        raise _too_deep()
    return body


def validate(kind: type[AnyBody], body: Mapping[str, Any]) -> AnyBody:
    """`body` as one of the classes above; raises ApiError 400 that names the first wrong field."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        wrong = [(_field_name(e, body), e["msg"]) for e in error.errors(include_url=False)]
        # Of a union, every option's error is there; the one that got deepest is what the client meant.
        field, why = max(
            (found for found in wrong if found[0].startswith(wrong[0][0])),
            key=lambda found: found[0].count("."),
        )
        raise bad_request(f"{field}: {why}", field) from None


def _field_name(error: ErrorDetails, body: Any) -> str:
    """The dotted name of a field, without the names that pydantic gives to the options of a union."""
    names, inside = [], body
    for part in error["loc"]:
        if isinstance(part, int) and isinstance(inside, list):
            inside = inside[part]
        elif isinstance(inside, dict) and (part in inside or error["type"] == "missing"):
            inside = inside.get(part)
        else:
            continue
        names.append(str(part))
    return ".".join(names)


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(child, levels - 1) for child in children)


def _too_deep() -> ApiError:
    return bad_request(f"The request body is nested deeper than {MAX_NESTING} levels.")


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
