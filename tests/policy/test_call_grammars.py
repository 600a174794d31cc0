"""Whatever a grammar of calls allows is read back as one call with valid arguments, in every dialect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from grammar_walks import Grammar
from jsonschema import Draft202012Validator

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from openclaw_rl.evals.byte_template import CHATML, byte_template
from openclaw_rl.model import Tool
from openclaw_rl.policy.call_grammars import Exactness
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.grammars import grammar
from openclaw_rl.policy.reply import ReplyReader, Thought

MARKS = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
WITH_TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + CHATML
TEMPLATES = {
    "hermes": "{# <tool_call> #}",
    "qwen3-coder": "{# <tool_call><function= #}",
    "mistral": "{# [TOOL_CALLS] #}",
    "mistral, named first": "{# [TOOL_CALLS][ARGS] #}",
    "llama3": "{# <|python_tag|> #}",
    "plain": "",
}
SHORT = {"type": "string", "maxLength": 6}
SCHEMAS: dict[str, dict[str, Any]] = {
    "kinds": {
        "type": "object",
        "properties": {
            "path": SHORT,
            "mode": {"enum": ["r", 'w"', "a\n"]},
            "line": {"type": "integer", "minimum": -3, "maximum": 12},
            "wide": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["x", 1, None]}, "maxItems": 3},
        },
        "required": ["path", "tags"],
    },
    "references": {
        "$defs": {"Unit": {"enum": ["C", "F"]}, "Day": {"type": "integer", "maximum": 9, "minimum": 0}},
        "properties": {
            "unit": {"$ref": "#/$defs/Unit"},
            "day": {"anyOf": [{"$ref": "#/$defs/Day"}, {"type": "null"}]},
            "note": {"anyOf": [SHORT, {"type": "null"}]},
        },
        "required": ["unit", "day"],
    },
    "nested": {
        "type": "object",
        "properties": {
            "edit": {
                "type": "object",
                "properties": {"old": SHORT, "new": SHORT},
                "required": ["old"],
                "additionalProperties": False,
            }
        },
        "required": ["edit"],
    },
    "pattern": {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": "^[a-z]{2}/[0-9]{1,3}$"}},
        "required": ["id"],
    },
    "none": {"type": "object", "properties": {}, "additionalProperties": False},
}


def template_of(name: str, marks: tuple[str, ...] = MARKS, chatml: str = WITH_TOOLS) -> ChatTemplate:
    return byte_template(TEMPLATES[name] + chatml, marks)


def tool(name: str, schema: dict[str, Any] | None) -> Tool:
    function = {"name": name} if schema is None else {"name": name, "parameters": schema}
    return {"type": "function", "function": function}


def read(template: ChatTemplate, tools: list[Tool], reply: str, *, inside_thought: bool = False) -> list[Any]:
    reader = ReplyReader(template.dialect, tools, inside_thought=inside_thought)
    return [*reader.feed(reply), *reader.finish()]


@pytest.mark.parametrize("marks", [MARKS, ()], ids=["marks are tokens", "marks are text"])
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("family", TEMPLATES)
def test_whatever_is_allowed_is_one_call_with_valid_arguments(
    family: str, schema: str, marks: tuple[str, ...]
) -> None:
    template = template_of(family, marks)
    tools = [tool("open", SCHEMAS[schema]), tool('odd"né', SCHEMAS[schema]), tool("now", None)]
    allowed = Grammar(template, grammar(template, inside_thought=False, tools=tools))
    named = set()
    for seed in range(6):
        reply = allowed.walk(seed)
        (call,) = read(template, tools, reply)
        named.add(call.name)
        given = SCHEMAS[schema] if call.name != "now" else SCHEMAS["none"]
        Draft202012Validator(given).validate(json.loads(call.arguments))
    assert named <= {"open", 'odd"né', "now"}


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("hermes", '<tool_call>\n{"name": "open", "arguments": {"path": "a", "tags": []}}\n</tool_call>'),
        ("plain", '<tool_call>\n{"name": "open", "arguments": {"path": "a", "tags": []}}\n</tool_call>'),
        (
            "qwen3-coder",
            "<tool_call>\n<function=open>\n<parameter=path>\na\n</parameter>\n<parameter=tags>\n[]\n"
            "</parameter>\n</function>\n</tool_call>",
        ),
        ("mistral", '[TOOL_CALLS][{"name": "open", "arguments": {"path": "a", "tags": []}}]'),
        ("mistral, named first", '[TOOL_CALLS]open[ARGS]{"path": "a", "tags": []}'),
        ("llama3", '{"name": "open", "parameters": {"path": "a", "tags": []}}'),
    ],
)
def test_a_model_may_write_a_call_as_its_template_does(family: str, reply: str) -> None:
    template = template_of(family)
    tools = [tool("open", SCHEMAS["kinds"])]
    allowed = Grammar(template, grammar(template, inside_thought=False, tools=tools))
    assert allowed.allows(reply)
    assert not allowed.allows(reply.replace("open", "shut"))
    assert not allowed.allows(reply.replace("path", "paths"))
    assert not allowed.allows(f"Well. {reply}")


@pytest.mark.parametrize("marks", [MARKS, ()], ids=["marks are tokens", "marks are text"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_thought_may_come_first_where_the_model_has_them(marks: tuple[str, ...], inside: bool) -> None:
    template = template_of("hermes", marks, "{# <think> #}" + WITH_TOOLS)
    tools = [tool("now", None)]
    allowed = Grammar(template, grammar(template, inside_thought=inside, tools=tools))
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    thought = "I look {at} it.\n</think>\n\n"
    assert allowed.allows(thought + call) is inside
    if not inside:
        assert allowed.allows(f"<think>\n{thought}{call}")
    assert allowed.allows(call) is not inside
    assert not allowed.allows(thought)
    told = read(template, tools, thought + call, inside_thought=True)
    assert [type(part) for part in told][:1] == [Thought]
    assert told[-1].name == "now"


def test_a_model_without_thoughts_begins_none() -> None:
    template = template_of("hermes")
    allowed = Grammar(template, grammar(template, inside_thought=False, tools=[tool("now", None)]))
    assert not allowed.allows('<think>x</think><tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')


@pytest.mark.parametrize("family", TEMPLATES)
def test_without_its_schema_a_call_still_is_one(family: str) -> None:
    template = template_of(family)
    tools = [tool("open", {"type": "object", "properties": {"x": {"not": {}}}})]
    text = grammar(template, inside_thought=False, tools=tools, exactness={"open": Exactness.ANY})
    if family == "qwen3-coder":
        reply = "<tool_call>\n<function=open>\n<parameter=y>\n1\n</parameter>\n</function>\n</tool_call>"
    else:
        reply = template_call(template, "open", '{"y": {"z": [1, null]}}')
    assert Grammar(template, text).allows(reply)
    (call,) = read(template, tools, reply)
    assert "y" in json.loads(call.arguments)


def template_call(template: ChatTemplate, name: str, arguments: str) -> str:
    key = "parameters" if template.dialect.name == "llama3" else "arguments"
    call = f'{{"name": "{name}", "{key}": {arguments}}}'
    return {
        "llama3": call,
        "mistral": f"[TOOL_CALLS]{name}[ARGS]{arguments}"
        if template.names_calls_first
        else f"[TOOL_CALLS][{call}]",
    }.get(template.dialect.name, f"<tool_call>\n{call}\n</tool_call>")
