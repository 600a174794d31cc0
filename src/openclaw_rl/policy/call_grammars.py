"""One tool call as a grammar, written as the model's own dialect writes it, arguments valid under the schema.

The counterpart of `dialects`, which reads what these grammars allow. Knows no reply around the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from openclaw_rl.model import Tool
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.dialects import LLAMA3, MISTRAL, QWEN3_CODER, leaves
from openclaw_rl.policy.lark import json_value, literal, mark, regex

_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""JSON in one line, as chat templates write calls."""
_OPEN_ENDED = ("patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if", "additionalProperties")
_MOST_PARAMETERS = 16
"""Of a call in XML whose parameters no schema names."""


class Exactness(IntEnum):
    """How much of a tool's schema the arguments must keep to; anyone may have written it."""

    WHOLE = 0
    LENIENT = 1
    """Without the keywords that the library does not know."""
    ANY = 2
    """Any arguments at all."""


def call_rules(template: ChatTemplate, tools: Sequence[Tool], exactness: Mapping[str, Exactness]) -> str:
    """The rule `call`, and those that it is made of."""
    arguments_of = _in_xml if template.dialect is QWEN3_CODER else _in_json
    rules = []
    for position, tool in enumerate(tools):
        function = tool["function"]
        level = exactness.get(function["name"], Exactness.WHOLE)
        schema = _arguments_schema(function.get("parameters"), level)
        before, after = _naming(template, function["name"])
        rule = f"call_{position}"
        arguments, more = arguments_of(schema, level, f"{rule}_arguments")
        rules.append(f"{rule}: {before} {arguments} {after}\n{more}")
    any_of_them = " | ".join(f"call_{position}" for position in range(len(tools)))
    before, after = _around(template)
    return f"call: {before} ({any_of_them}) {after}\n{''.join(rules)}"


def _around(template: ChatTemplate) -> tuple[str, str]:
    """What a call begins and ends with."""
    dialect = template.dialect
    if dialect is LLAMA3:
        return "", ""
    opening = mark(template, dialect.opening)
    if dialect is MISTRAL:
        return (opening, "") if template.names_calls_first else (f'{opening} "["', '"]"')
    line_end = literal("\n")
    return f"{opening} {line_end}", f"{line_end} {mark(template, dialect.closing or '')}"


def _naming(template: ChatTemplate, name: str) -> tuple[str, str]:
    """What stands before and after the arguments of a call."""
    if template.dialect is QWEN3_CODER:
        return literal(f"<function={name}>\n"), literal("</function>")
    if template.dialect is MISTRAL and template.names_calls_first:
        return f"{literal(name)} {mark(template, '[ARGS]')}", ""
    key = "parameters" if template.dialect is LLAMA3 else "arguments"
    return literal(f'{{"name": {literal(name)}, "{key}": '), literal("}")


def _arguments_schema(parameters: object, level: Exactness) -> dict[str, Any]:
    if level is Exactness.ANY:
        return {"type": "object"}
    if not isinstance(parameters, dict):
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {**parameters, "type": "object"}
    if schema.get("properties") and not any(name in schema for name in _OPEN_ENDED):
        # Valid either way, and small models make things up where they may.
        schema["additionalProperties"] = False
    return schema


def _in_json(schema: dict[str, Any], level: Exactness, _: str) -> tuple[str, str]:
    return json_value(schema, {**_WRITTEN, "lenient": level is Exactness.LENIENT}), ""


def _in_xml(schema: dict[str, Any], level: Exactness, rule: str) -> tuple[str, str]:
    """Parameters in the order of the schema: texts as they are, all other values as JSON.

    The rule's name, and the rules that it is made of.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        named = f"{regex(r'<parameter=[A-Za-z_][A-Za-z0-9_]{0,40}>')} {literal(chr(10))} {rule.upper()}"
        return rule, f"{rule}: ({named}){{0,{_MOST_PARAMETERS}}}\n{_ended_text(rule.upper(), {})}"
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    order, rules = [], []
    for position, (key, inner) in enumerate(properties.items()):
        parameter = f"{rule}_{position}"
        value, more = _xml_value(inner, schema, level, parameter)
        opening = literal(f"<parameter={key}>\n")
        rules.append(f"{parameter}: {opening} ({value})\n{more}")
        order.append(parameter if key in required else f"{parameter}?")
    return rule, f"{rule}: {' '.join(order) or literal('')}\n{''.join(rules)}"


_CLOSING = "\n</parameter>\n"


def _xml_value(inner: object, root: dict[str, Any], level: Exactness, rule: str) -> tuple[str, str]:
    """One parameter's value with its end. It is read as a text wherever the schema lets it be one."""
    found = leaves(inner, root)
    texts = [leaf.schema for leaf in found if "string" in leaf.kinds]
    if isinstance(inner, dict) and found and not texts and all(leaf.kinds for leaf in found):
        definitions: dict[str, Any] = {name: root[name] for name in ("$defs", "definitions") if name in root}
        options = {**_WRITTEN, "lenient": level is Exactness.LENIENT}
        return f"{json_value({**definitions, **inner}, options)} {literal(_CLOSING)}", ""
    values, rules = [], []
    for position, schema in enumerate(texts or [{}]):
        if choices := _text_choices(schema):
            values += [literal(text + _CLOSING) for text in choices]
        else:
            values.append(f"{rule}_{position}".upper())
            rules.append(_ended_text(values[-1], schema))
    return " | ".join(values), "".join(rules)


def _text_choices(schema: dict[str, Any]) -> list[str]:
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    return [text for text in given if isinstance(text, str)] if isinstance(given, list) else []


_MARKS = regex(r"(?s:.*)<(/parameter|/function|/tool_call|parameter=|function=)(?s:.*)")


def _ended_text(terminal: str, schema: dict[str, Any]) -> str:
    """A text of the schema's length and pattern, and the tag that ends it, as one terminal.

    As two, the text would have to know that the end is not a part of it.
    """
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    least = shortest if isinstance(shortest, int) else 0
    most = longest if isinstance(longest, int) else ""
    text = f"{regex(f'(?s:.{{{least},{most}}})')} & ~{_MARKS}"
    if isinstance(pattern := schema.get("pattern"), str):
        # JSON Schema looks for a pattern anywhere in the text, and the library knows no anchors.
        before = "" if pattern.startswith("^") else "(?s:.*)"
        after = "" if pattern.endswith("$") else "(?s:.*)"
        inner = pattern.removeprefix("^").removesuffix("$")
        text += f" & {regex(f'{before}(?:{inner}){after}')}"
    return f"{terminal}: ({text}) {literal(_CLOSING)}\n"
