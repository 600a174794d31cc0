"""From what a request demands to a grammar that the engine has compiled.

Tools are written by third parties: what the library cannot enforce of a tool's schema is left out and
counted, and a call is never refused for it. A form that a client asks for is refused where it is not kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.errors import ApiError, bad_request
from openclaw_rl.gateway.service import Service
from openclaw_rl.model import Tool
from openclaw_rl.policy.call_grammars import Exactness
from openclaw_rl.policy.engine import EngineBusyError, GrammarError
from openclaw_rl.policy.grammars import ReplyForm, grammar

LOOKING_SECONDS = 8.0
"""The longest that one request waits to learn which part, or tool, is at fault."""
_MOST_LOOKED_AT = 200
"""Parts of a refused schema that are tried in order to name the one at fault."""


@dataclass(frozen=True, slots=True)
class ReadyGrammar:
    """Ready in the engine as long as somebody holds this."""

    text: str
    """Empty where replies are free."""
    _held: object = None


async def grammar_for(service: Service, request: CompletionRequest, *, inside_thought: bool) -> ReadyGrammar:
    """The grammar of a request's replies.

    With a form, and tools that may be called, a reply is one or the other. Raises ApiError 400, and
    EngineBusyError when the engine compiles too many others.
    """
    form, tools = request.form, request.tools
    if request.must_call:
        tools = tuple(tool for tool in tools if tool["function"]["name"] in request.must_call)
    elif form is None:
        return ReadyGrammar("")
    looking = _Looking(service)
    answer_rule = "" if form is None else await _answer_rule(looking, form)

    def written(exactness: dict[str, Exactness]) -> str:
        return grammar(
            service.template,
            inside_thought=inside_thought,
            answer_rule=answer_rule,
            tools=tools,
            exactness=exactness,
        )

    field = form.field if form else "tool_choice"
    whole = written({})
    try:
        return await _ready(service, whole)
    except GrammarError as error:
        fault = str(error)
    found = {tool["function"]["name"]: await _exactness(looking, tool) for tool in tools}
    for exactness in (found, dict.fromkeys(found, Exactness.ANY)):
        loosened = written(exactness)
        try:
            ready = await _ready(service, loosened)
        except GrammarError as error:
            fault = str(error)
            continue
        service.loosened_schemas += sum(level is not Exactness.WHOLE for level in exactness.values())
        return ready
    raise _refusal(field, fault)


async def _ready(service: Service, text: str) -> ReadyGrammar:
    return ReadyGrammar(text, await service.engine.prepare_grammar(text))


class _Looking:
    """One request's looking for what is at fault. All of it together has a time."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._left = LOOKING_SECONDS

    async def fault(self, text: str) -> str:
        """Why the engine cannot compile a grammar; empty when it has. Raises TimeoutError."""
        if self._left <= 0:
            raise TimeoutError
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._left):
                await self.service.engine.prepare_grammar(text)
        except GrammarError as error:
            return str(error)
        finally:
            self._left -= time.monotonic() - began
        return ""


async def _exactness(looking: _Looking, tool: Tool) -> Exactness:
    """How much of a tool's schema can be enforced, as far as there is time to find out."""
    name = tool["function"]["name"]
    for level in (Exactness.WHOLE, Exactness.LENIENT):
        text = grammar(looking.service.template, inside_thought=False, tools=[tool], exactness={name: level})
        try:
            if not await looking.fault(text):
                return level
        except TimeoutError:
            break
    return Exactness.ANY


async def _answer_rule(looking: _Looking, form: ReplyForm) -> str:
    fault = await _rule_fault(looking.service, form.rule)
    if not fault:
        return form.rule
    if not form.strict and not await _rule_fault(looking.service, form.lenient_rule):
        looking.service.loosened_schemas += 1
        return form.lenient_rule
    if form.kind == "json":
        raise _refusal(form.field + await _part_at_fault(looking, form), fault)
    raise _refusal(form.field, fault)


async def _rule_fault(service: Service, rule: str) -> str:
    try:
        await service.engine.prepare_grammar(_alone(rule))
    except GrammarError as error:
        return str(error)
    return ""


def _alone(rule: str) -> str:
    return f"start: answer\n{rule}"


async def _part_at_fault(looking: _Looking, form: ReplyForm) -> str:
    """Where in a schema the innermost part lies that cannot be compiled, as `.properties.name`."""
    place, looked_at, schema = "", 0, form.value
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    while True:
        for path, inner in _subschemas(schema):
            looked_at += 1
            if looked_at > _MOST_LOOKED_AT:
                return place
            part = replace(form, value={**definitions, **inner})
            try:
                fault = await looking.fault(_alone(part.rule))
            except (TimeoutError, EngineBusyError):
                return place
            if fault:
                place, schema = place + path, inner
                break
        else:
            return place


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("properties", "patternProperties", "$defs", "definitions"):
        inside = schema.get(name)
        for key, inner in inside.items() if isinstance(inside, dict) else ():
            if isinstance(inner, dict):
                yield f".{name}.{key}", inner
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inside = schema.get(name)
        for position, inner in enumerate(inside) if isinstance(inside, list) else ():
            if isinstance(inner, dict):
                yield f".{name}.{position}", inner
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield f".{name}", schema[name]


def _refusal(field: str, fault: str) -> ApiError:
    return bad_request(f"{field}: it cannot be enforced: {fault}", field)
