"""From the raw bytes of a request to a checked body.

What is checked here holds for every protocol: size, JSON, and the fields that its class names. A field
that it does not name is ignored, and null means absent. Knows no route and no protocol.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from openclaw_rl.gateway.errors import ApiError, bad_request

MAX_NESTING = 100
FIRST_FAULT = Field(fail_fast=True)
"""On a list: stop at its first wrong item. A list of millions would otherwise give millions of errors."""


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    @classmethod
    def ignored_fields(cls, body: Mapping[str, Any]) -> list[str]:
        """The fields of `body` that this class does not name."""
        return [name for name in body if name not in cls.model_fields]


class SessionFields(Body):
    """Fields of ours, for clients that cannot set headers."""

    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | int | str | None = None


AnyBody = TypeVar("AnyBody", bound=Body)


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
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_object)
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
    """`body` as a body class; raises ApiError 400 that names the first wrong field."""
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
    for position, part in enumerate(error["loc"], start=1):
        is_missing = error["type"] == "missing" and position == len(error["loc"])
        if isinstance(part, int) and isinstance(inside, list):
            inside = inside[part]
        elif isinstance(inside, dict) and (part in inside or is_missing):
            inside = inside.get(part)
        else:
            continue
        names.append(str(part))
    return ".".join(names)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        # Readers disagree on which of the two counts.
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise bad_request(f"The request body has an object with two values for {twice[:80]!r}.")
    return read


def _deeper_than(value: dict[str, Any] | list[Any], levels: int) -> bool:
    children = value.values() if isinstance(value, dict) else value
    inner = [child for child in children if isinstance(child, dict | list)]
    return levels == 0 or any(_deeper_than(child, levels - 1) for child in inner)


def _too_deep() -> ApiError:
    return bad_request(f"The request body is nested deeper than {MAX_NESTING} levels.")


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
