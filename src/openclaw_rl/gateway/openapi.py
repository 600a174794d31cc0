"""The description of our routes in OpenAPI's form, served at `/openapi.json`.

Made from the same classes that check the bodies, so it cannot say something else than the server does.
Routes say which class is theirs; this file knows neither what they do nor how.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from openclaw_rl.gateway.bodies import Body
from openclaw_rl.gateway.errors import ANTHROPIC_PATH

_REF = "#/components/schemas/{model}"
_DEFINITIONS = "x-definitions"

_TEXT = {"type": "string"}
_MAYBE_TEXT = {"anyOf": [_TEXT, {"type": "null"}]}
_ERRORS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {**_TEXT, "description": "Says what is wrong, for people."},
                    "type": _TEXT,
                    "param": {**_MAYBE_TEXT, "description": "The field that is wrong, dotted."},
                    "code": _MAYBE_TEXT,
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": _TEXT, "message": _TEXT},
            },
        },
    },
}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def takes(body: type[Body], *, streams: bool = False) -> dict[str, Any]:
    """For a route's `openapi_extra`: the body it takes, and whether it can answer with a stream."""
    schema = body.model_json_schema(ref_template=_REF)
    answer: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        answer["text/event-stream"] = {"schema": _TEXT}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "The answer.", "content": answer}},
    }


def asks(query: type[Body]) -> dict[str, Any]:
    """For a route's `openapi_extra`: what may stand in its query string."""
    schema = query.model_json_schema(ref_template=_REF)
    parameters = [
        {"name": name, "in": "query", "required": False, "schema": kind}
        for name, kind in schema["properties"].items()
    ]
    return {"parameters": parameters, _DEFINITIONS: schema.get("$defs", {})}


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of every route of `app`."""
    described = app.openapi()
    schemas = dict(_ERRORS)
    for path, methods in described["paths"].items():
        for operation in methods.values():
            operation["responses"].pop("422", None)  # FastAPI's own; ours are checked by `bodies`
            operation["responses"]["default"] = _refusal(path)
            operation["security"] = [{}, *({name: []} for name in _KEYS)]
            schemas |= operation.pop(_DEFINITIONS, {})
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                schemas |= schema.pop("$defs", {})
    return {**described, "components": {"schemas": schemas, "securitySchemes": _KEYS}}


def _refusal(path: str) -> dict[str, Any]:
    name = "AnthropicError" if path.startswith(ANTHROPIC_PATH) else "Error"
    schema = {"$ref": _REF.format(model=name)}
    return {
        "description": "Refused, with the reason in words.",
        "content": {"application/json": {"schema": schema}},
    }
