"""What a request demands of its reply: which tools it must call, and the form of its answer.

The protocols say so in words of their own; here is what those words have in common and how they are
refused. Knows no engine: whether a grammar can be compiled is found in `constraint`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from openclaw_rl.gateway.errors import ApiError, bad_request
from openclaw_rl.model import Tool
from openclaw_rl.policy.grammars import ReplyForm

ANY_OBJECT = {"type": "object"}
_FIELD = "tool_choice"
_OUTPUTS = "structured_outputs"

Mode = Literal["auto", "none", "required"]


def offered(
    tools: Sequence[Tool], mode: Mode, names: Sequence[str] | None = None
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools that the policy is offered, and the names of those of which it must call one.

    `names` are those that the client's choice is restricted to. Raises ApiError for one that was not
    offered, and where a call is required without any tool.
    """
    known = [tool["function"]["name"] for tool in tools]
    for name in names or ():
        if name not in known:
            raise bad_request(f"{_FIELD}: no tool named {name!r} was offered", _FIELD)
    if mode == "none":
        return (), ()
    if mode == "required":
        if not known or names == []:
            raise bad_request(f"{_FIELD}: a call is required, but no tool was offered", _FIELD)
        return tuple(tools), tuple(dict.fromkeys(known if names is None else names))
    return tuple(tool for tool in tools if names is None or tool["function"]["name"] in names), ()


def unknown_choice(choice: object) -> ApiError:
    """The refusal of a tool choice that means nothing here."""
    said = json.dumps(choice, ensure_ascii=False)[:80]
    return bad_request(f"{_FIELD}: {said} is not understood here", _FIELD)


def listed(tools: object) -> list[Any]:
    """The tools that a choice allows; raises ApiError for anything but a list."""
    if not isinstance(tools, list):
        raise unknown_choice({"tools": tools})
    return tools


def mode_of(choice: object) -> Mode:
    """One of OpenAI's three words for a tool choice; None is auto."""
    if choice in ("auto", None):
        return "auto"
    if choice == "none":
        return "none"
    if choice == "required":
        return "required"
    raise unknown_choice(choice)


def format_asked(given: Mapping[str, Any] | None, field: str, schema_field: str) -> ReplyForm | None:
    """OpenAI's `response_format` or `text.format`; None for free text.

    `schema_field` is where the schema of a json_schema lies in it, as the client knows it: Chat has it one
    level deeper than Responses.
    """
    kind = (given or {}).get("type", "text")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return ReplyForm("json", ANY_OBJECT, field)
    if kind != "json_schema":
        raise bad_request(f"{field}.type: send text, json_object or json_schema", f"{field}.type")
    inside = given
    *within, last = schema_field.removeprefix(f"{field}.").split(".")
    for name in within:
        inside = found if isinstance(found := inside.get(name), dict) else {}
    schema = inside.get(last)
    if not isinstance(schema, dict):
        raise bad_request(f"{schema_field}: a JSON Schema is needed", schema_field)
    return ReplyForm("json", schema, schema_field, strict=inside.get("strict") is True)


def structured_outputs(given: Mapping[str, Any]) -> ReplyForm | None:
    """vLLM's `structured_outputs`: one of json, json_object, regex, choice and grammar."""
    named = {name: value for name, value in given.items() if value is not None and value is not False}
    forms = [name for name in ("json", "json_object", "regex", "choice", "grammar") if name in named]
    if len(forms) != 1:
        raise bad_request(f"{_OUTPUTS}: send one of json, json_object, regex, choice and grammar", _OUTPUTS)
    field, value = f"{_OUTPUTS}.{forms[0]}", named[forms[0]]
    if forms == ["json_object"]:
        return ReplyForm("json", ANY_OBJECT, field)
    if forms == ["json"]:
        return ReplyForm("json", _schema(value, field), field)
    if forms == ["choice"]:
        if not (isinstance(value, list) and value and all(isinstance(text, str) for text in value)):
            raise bad_request(f"{field}: send a list of texts", field)
        return ReplyForm("choice", value, field)
    if not (isinstance(value, str) and value):
        raise bad_request(f"{field}: send a text", field)
    if forms == ["grammar"] and "::=" in value:
        raise bad_request(f"{field}: only Lark grammars are read here, with a rule named start", field)
    return ReplyForm("regex" if forms == ["regex"] else "lark", value, field)


def one_form(forms: Sequence[ReplyForm | None], must_call: Sequence[str]) -> ReplyForm | None:
    """The one form that was asked for; raises ApiError where there are two.

    A reply that must be a call is no answer, so it has none: agents send the form of their last answer with
    every request.
    """
    asked = [form for form in forms if form is not None]
    if len(asked) > 1:
        first, second = asked[0].field, asked[1].field
        raise bad_request(f"{second}: {first} says already what the reply must be", second)
    return asked[0] if asked and not must_call else None


def _schema(value: object, field: str) -> dict[str, Any]:
    """A JSON Schema, also as its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise bad_request(f"{field}: it is not valid JSON", field) from None
    if not isinstance(value, dict):
        raise bad_request(f"{field}: a JSON Schema is needed", field)
    return value
