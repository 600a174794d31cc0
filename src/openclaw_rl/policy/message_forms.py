"""Messages in the forms that chat templates take.

Clients send developer messages, null content, content parts and arguments as text; templates take none
of these, and each refuses something of its own. Nothing said is left out by a change made here. Knows
no tokens and no template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from openclaw_rl.model import Message, Tool

TOOLS_PREAMBLE = """You can call these tools. To call one, answer with a JSON object inside tags:
<tool_call>
{"name": "<tool name>", "arguments": {<arguments as JSON>}}
</tool_call>

<tools>
%s
</tools>"""


class ChatTemplateError(ValueError):
    """The model's template refuses these messages; `str(error)` says why in its own words."""


def text_of(content: Any) -> str:
    """The text of a message's content: a string, null, or a list of parts whose texts are joined.

    Raises ChatTemplateError for parts that hold no text (images, audio).
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
        else:
            raise ChatTemplateError(
                f"this model reads text only, not content parts of type {part.get('type')!r}"
            )
    return "\n".join(texts)


def plain(message: Message) -> Message:
    """The form that templates expect: known role, string content, arguments as an object."""
    role = "system" if message["role"] == "developer" else message["role"]
    made = {**message, "role": role, "content": text_of(message.get("content"))}
    if not message.get("tool_calls"):
        made.pop("tool_calls", None)
        return made
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function") or {}
        arguments = _as_object(function.get("arguments"))
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**made, "tool_calls": calls}


def _as_object(arguments: Any) -> Any:
    """Arguments as the object that templates walk through; text that is none is kept as `unparsed`."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):  # broken, or with a number or a nesting beyond Python's limits
        parsed = arguments
    if parsed is None:
        return {}
    return parsed if isinstance(parsed, dict) else {"unparsed": arguments}


def spell_out_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """For a template that knows no tools: definitions, calls and results written into plain messages."""
    spelled: list[Message] = []
    rest = list(messages)
    if tools:
        preamble = TOOLS_PREAMBLE % "\n".join(to_json(tool) for tool in tools)
        if rest and rest[0]["role"] == "system":
            spelled.append({"role": "system", "content": f"{rest[0]['content']}\n\n{preamble}"})
            rest = rest[1:]
        else:
            spelled.append({"role": "system", "content": preamble})
    for message in rest:
        if message["role"] == "tool":
            result = f"<tool_response>\n{message['content']}\n</tool_response>"
            spelled.append({"role": "user", "content": result})
        elif message.get("tool_calls"):
            calls = "\n".join(_spell_out_call(call["function"]) for call in message["tool_calls"])
            spelled.append({"role": message["role"], "content": f"{message['content']}\n{calls}".strip()})
        else:
            spelled.append(message)
    return spelled


def _spell_out_call(function: dict[str, Any]) -> str:
    call = {"name": function.get("name"), "arguments": function.get("arguments")}
    return f"<tool_call>\n{to_json(call)}\n</tool_call>"


def with_short_call_ids(messages: Sequence[Message]) -> list[Message]:
    """Ids of calls as nine letters or digits, which Mistral's templates insist on."""
    shortened = []
    for message in messages:
        made = dict(message)
        if isinstance(message.get("tool_call_id"), str):
            made["tool_call_id"] = _short(message["tool_call_id"])
        if message.get("tool_calls"):
            made["tool_calls"] = [
                {**call, "id": _short(str(call.get("id", "")))} for call in message["tool_calls"]
            ]
        shortened.append(made)
    return shortened


def _short(call_id: str) -> str:
    # Some clients strip the underscore in calls but perhaps not in results.
    bare = "".join(character for character in call_id if character.isalnum())
    return hashlib.sha256(bare.encode()).hexdigest()[:9]


def with_whole_schemas(tools: Sequence[Tool]) -> list[Tool]:
    """Tools whose parameters are an object with properties, each of them an object, as stricter templates
    expect. JSON Schema leaves all of that open, and says the same with it."""
    return [
        {**tool, "function": {**tool["function"], "parameters": _whole(tool["function"].get("parameters"))}}
        for tool in tools
    ]


def _whole(schema: Any) -> dict[str, Any]:
    given = schema if isinstance(schema, dict) else {}
    properties = given.get("properties")
    named = properties if isinstance(properties, dict) else {}
    described = {name: field if isinstance(field, dict) else {} for name, field in named.items()}
    return {"type": "object", **given, "properties": described}


def accommodations(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages as they are, then in forms that stricter templates accept, each built on the last."""
    yield messages
    for change in (_later_systems_as_user, _one_call_each, _merged_users, _system_as_user):
        changed = change(messages)
        if changed != messages:
            messages = changed
            yield messages


def _later_systems_as_user(messages: list[Message]) -> list[Message]:
    return [
        {**message, "role": "user"} if position and message["role"] == "system" else message
        for position, message in enumerate(messages)
    ]


def _one_call_each(messages: list[Message]) -> list[Message]:
    """Calls made together, as calls made one after the other, each followed by its result."""
    split: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        calls = message.get("tool_calls") or []
        results: list[Message] = []
        while len(calls) > 1 and position < len(messages) and messages[position]["role"] == "tool":
            results.append(messages[position])
            position += 1
        if len(calls) < 2 or len(results) != len(calls):
            split += [message, *results]
            continue
        for number, (call, result) in enumerate(zip(calls, results, strict=True)):
            content = message["content"] if number == 0 else ""
            split += [{**message, "content": content, "tool_calls": [call]}, result]
    return split


def _merged_users(messages: list[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            both = f"{merged[-1]['content']}\n\n{message['content']}"
            merged[-1] = {**merged[-1], "content": both}
        else:
            merged.append(message)
    return merged


def _system_as_user(messages: list[Message]) -> list[Message]:
    if not messages or messages[0]["role"] != "system":
        return messages
    return _merged_users([{**messages[0], "role": "user"}, *messages[1:]])


def to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    """JSON as models were trained on: Jinja's own filter escapes HTML and sorts keys."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
