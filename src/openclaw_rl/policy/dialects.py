"""How model families write tool calls, and which family a chat template belongs to.

A dialect says what a block of calls begins and ends with and reads what is inside. It is chosen from the
template that the prompt is made with, never from a model's name. Knows no stream and no HTTP.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from openclaw_rl.model import Tool


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """A JSON object, as text."""


ToolsByName = Mapping[str, Tool]
Read = Callable[[str, ToolsByName], list[ToolCall]]
"""The calls of a block; raises ValueError for a block that is none."""


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    opening: str
    closing: str | None
    """None: a block goes on to the next opening or the end of the reply."""
    read: Read
    bare: bool = False
    """A reply that is nothing but JSON may be calls without an opening, if the tools were offered."""
    markers: tuple[str, ...] = ()
    """Special tokens of the tokenizer that belong to the dialect, besides opening and closing."""


MENTION = re.compile(r"<tool_call>(?:\s*<function=)?|<function=|\[TOOL_CALLS\]|<\|python_tag\|>")
"""What any dialect begins with; in visible text it is a call that could not be read."""


def dialect_of(template: str, *, offers_tools: bool) -> Dialect:
    """The dialect that a chat template teaches; ours when the template does not offer tools itself."""
    if not offers_tools:
        return HERMES
    if "<function=" in template:
        return QWEN3_CODER
    if HERMES.opening in template:
        return HERMES
    if MISTRAL.opening in template:
        return MISTRAL
    if LLAMA3.opening in template or ("ipython" in template and '"parameters"' in template):
        return LLAMA3
    return PLAIN


def read_arguments(value: Any) -> str:
    """Arguments as the text of a JSON object; raises ValueError for anything else."""
    if isinstance(value, str):
        value = loads(value)
    if not isinstance(value, dict):
        raise ValueError("arguments are an object")
    written = json.dumps(value, ensure_ascii=False)
    written.encode()  # a lone surrogate could not be sent
    return written


def loads(text: str) -> Any:
    # Models write raw line breaks inside JSON strings, so control characters are let through.
    return json.loads(text, strict=False, parse_constant=_refuse_constant)


def new_call(name: Any, arguments: Any) -> ToolCall:
    """Raises ValueError for a name or arguments that make no call."""
    if not isinstance(name, str) or not name:
        raise ValueError("a call has a name")
    name.encode()
    return ToolCall(f"call_{uuid.uuid4().hex[:24]}", name, read_arguments(arguments))


def _call_of(value: Any) -> ToolCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise ValueError("a call is an object")
    return new_call(value.get("name"), value.get("arguments", value.get("parameters", {})))


def _read_object(block: str, _: ToolsByName) -> list[ToolCall]:
    return [_call_of(loads(block))]


def _read_objects(block: str, _: ToolsByName) -> list[ToolCall]:
    """One object, a list of them, or several after each other, with semicolons between as Llama has them."""
    decoder = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
    calls: list[ToolCall] = []
    rest = block.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        calls += [_call_of(item) for item in (value if isinstance(value, list) else [value])]
        rest = rest[end:].lstrip(" \t\r\n;,")
    if not calls:
        raise ValueError("there is no call")
    return calls


_NAMED = re.compile(r"([^\s\[\]{}]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(\{.*)", re.DOTALL)


def _read_mistral(block: str, tools: ToolsByName) -> list[ToolCall]:
    """Mistral's older form is a list of objects, the newer a name followed by its arguments."""
    named = _NAMED.fullmatch(block.strip())
    return [new_call(*named.groups())] if named else _read_objects(block, tools)


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


def _read_xml(block: str, tools: ToolsByName) -> list[ToolCall]:
    calls = []
    for name, body in _all(_FUNCTION, block):
        schema = (tools.get(name, {}).get("function") or {}).get("parameters")
        properties = _properties(schema)
        values = {key: _typed(text, properties.get(key), schema) for key, text in _all(_PARAMETER, body)}
        calls.append(new_call(name, values))
    if not calls:
        raise ValueError("there is no call")
    return calls


def _all(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Every match, one right after the other; raises ValueError when anything stands between or after."""
    found, position = [], 0
    while match := pattern.match(text, position):
        found.append((match[1], match[2]))
        position = match.end()
    if text[position:].strip():
        raise ValueError("a call holds nothing but its parameters")
    return found


def _properties(parameters: Any) -> dict[str, Any]:
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def _typed(text: str, schema: Any, root: Any) -> Any:
    """A parameter's text as the value that its schema asks for; text where it does not say."""
    text = text.removeprefix("\n").removesuffix("\n")
    found = leaves(schema, root)
    if any("string" in leaf.kinds for leaf in found):
        return text
    says = any(leaf.kinds for leaf in found)
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text) if says else text
    # Without a type only what can be nothing but JSON is read as such.
    return value if says or isinstance(value, dict | list) else text


@dataclass(frozen=True, slots=True)
class Leaf:
    """One of the things that a schema lets a value be."""

    schema: dict[str, Any]
    kinds: frozenset[str]
    """JSON Schema's names of its types; empty where it does not say."""


_KINDS = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
_MOST_LEAVES = 100


def leaves(schema: Any, root: Any) -> list[Leaf]:
    """What `schema` lets a value be, with references into `root` and alternatives followed."""
    found: list[Leaf] = []
    seen: list[Any] = []
    waiting = [schema]
    while waiting and len(seen) < _MOST_LEAVES:
        inner = waiting.pop(0)
        if not isinstance(inner, dict) or any(inner is one for one in seen):
            continue
        seen.append(inner)
        if isinstance(inner.get("$ref"), str):
            waiting.append(_referred(inner["$ref"], root))
        elif "type" not in inner and (
            options := inner.get("anyOf") or inner.get("oneOf") or inner.get("allOf")
        ):
            waiting += options if isinstance(options, list) else []
        else:
            found.append(Leaf(inner, _kinds(inner)))
    return found


def _kinds(schema: dict[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    if given is None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        given = [_KINDS.get(type(value), "null") for value in values] if isinstance(values, list) else []
    given = given if isinstance(given, list) else [given]
    return frozenset(kind for kind in given if isinstance(kind, str))


def _referred(reference: str, root: Any) -> Any:
    """What a reference within a schema points to; None where that is nothing."""
    inner = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        inner = inner.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(inner, dict) else None
    return inner


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


HERMES = Dialect("hermes", "<tool_call>", "</tool_call>", _read_object)
QWEN3_CODER = Dialect("qwen3-coder", "<tool_call>", "</tool_call>", _read_xml)
MISTRAL = Dialect("mistral", "[TOOL_CALLS]", None, _read_mistral, markers=("[ARGS]", "[CALL_ID]"))
LLAMA3 = Dialect("llama3", "<|python_tag|>", None, _read_objects, bare=True)
PLAIN = Dialect("plain", "<tool_call>", "</tool_call>", _read_objects, bare=True)
"""For a template that offers tools in a way of its own: JSON, alone or in tags."""
