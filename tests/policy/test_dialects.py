"""How each family of models writes tool calls, and which family a template belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.model import Tool
from openclaw_rl.policy.dialects import HERMES, LLAMA3, MISTRAL, PLAIN, QWEN3_CODER, Dialect, dialect_of
from openclaw_rl.policy.tool_calls import ToolCallSplitter, collect, parse


def tool(name: str, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("read", path={"type": "string"}),
    tool(
        "edit",
        path={"type": "string"},
        line={"type": "integer"},
        wide={"type": ["boolean", "null"]},
        tags={"type": "array"},
        free={},
    ),
]
ONE = [("read", {"path": "a"})]
BOTH = [("read", {"path": "a"}), ("edit", {"line": 2})]


def calls_in(text: str, dialect: Dialect) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in parse(text, dialect, TOOLS)[1]]


@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        ("{{ tools }}<tool_call>{{ '{\"name\":' }}", HERMES),
        ("{{ tools }}<tool_call>\n<function=name>\n<parameter=x>", QWEN3_CODER),
        ("[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS]", MISTRAL),
        ('Environment: ipython {{ tools }}{"name": "f", "parameters": {}}', LLAMA3),
        ("{{ tools }}<|python_tag|>", LLAMA3),
        ("{{ tools }} in a way of its own", PLAIN),
    ],
)
def test_the_dialect_is_read_off_the_template(template: str, dialect: Dialect) -> None:
    assert dialect_of(template, offers_tools=True) is dialect
    assert dialect_of(template, offers_tools=False) is HERMES, "what our own words teach"


@pytest.mark.parametrize(
    ("dialect", "text", "visible", "calls"),
    [
        (QWEN3_CODER, "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n"
         "</tool_call>", "", ONE),
        (QWEN3_CODER, "Both:\n<tool_call><function=read><parameter=path>a</parameter></function></tool_call>"
         "\n<tool_call>\n<function=edit>\n<parameter=line>\n2\n</parameter>\n</function>\n</tool_call>",
         "Both:", BOTH),
        (QWEN3_CODER, "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>", "", ONE),
        (QWEN3_CODER, "<tool_call>\n<function=read>\n</function>\n</tool_call>", "", [("read", {})]),
        (MISTRAL, '[TOOL_CALLS] [{"name": "read", "arguments": {"path": "a"}, "id": "abc"}]', "", ONE),
        (MISTRAL, '[TOOL_CALLS][{"name": "read", "arguments": {"path": "a"}}, '
         '{"name": "edit", "arguments": {"line": 2}}]', "", BOTH),
        (MISTRAL, 'Now.[TOOL_CALLS]read[ARGS]{"path": "a"}[TOOL_CALLS]edit[ARGS]{"line": 2}', "Now.", BOTH),
        (MISTRAL, '[TOOL_CALLS]read[CALL_ID]x1[ARGS]{"path": "a"}', "", ONE),
        (MISTRAL, '[TOOL_CALLS]read{"path": "a"}', "", ONE),
        (LLAMA3, '{"name": "read", "parameters": {"path": "a"}}', "", ONE),
        (LLAMA3, '\n{"name": "read",\n "parameters": {"path": "a"}}\n', "", ONE),
        (LLAMA3, '<|python_tag|>{"name": "read", "parameters": {"path": "a"}}', "", ONE),
        (LLAMA3, 'I look.<|python_tag|>{"type": "function", "name": "read", "parameters": {"path": "a"}}; '
         '{"name": "edit", "parameters": {"line": 2}}', "I look.", BOTH),
        (LLAMA3, '{"type": "function", "function": {"name": "read", "parameters": {"path": "a"}}}', "", ONE),
        (PLAIN, '{"name": "read", "arguments": {"path": "a"}}', "", ONE),
        (PLAIN, 'Sure. <tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>', "Sure.", ONE),
        (PLAIN, '[{"name": "read", "arguments": {"path": "a"}}]', "", ONE),
    ],
)  # fmt: skip
def test_what_models_of_a_family_write_is_read(
    dialect: Dialect, text: str, visible: str, calls: list[tuple[str, Any]]
) -> None:
    assert parse(text, dialect, TOOLS)[0] == visible
    assert calls_in(text, dialect) == calls


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5", "5"),
        ({"$ref": "#/$defs/Day"}, "5", 5),
        ({"oneOf": [{"$ref": "#/$defs/Day"}, {"type": "boolean"}]}, "true", True),
        ({"$ref": "#/$defs/Loop"}, "5", "5"),
        ({"$ref": "#/$defs/Nothing"}, "5", "5"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": None}, "null", None),
    ],
)
def test_a_parameter_is_typed_through_references_and_alternatives(
    schema: Any, text: str, value: object
) -> None:
    edit = tool("edit", x=schema)
    edit["function"]["parameters"]["$defs"] = {
        "Day": {"type": "integer"},
        "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]},
    }
    written = f"<tool_call><function=edit><parameter=x>\n{text}\n</parameter></function></tool_call>"
    (call,) = parse(written, QWEN3_CODER, [edit])[1]
    assert json.loads(call.arguments) == {"x": value}


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (QWEN3_CODER, "<tool_call>read a</tool_call>"),
        (QWEN3_CODER, "<tool_call><function=read> and words</function></tool_call>"),
        (QWEN3_CODER, "<tool_call><function=></function></tool_call>"),
        (QWEN3_CODER, '<tool_call>{"name": "read", "arguments": {}}</tool_call>'),
        (MISTRAL, "[TOOL_CALLS] read the file"),
        (MISTRAL, "[TOOL_CALLS]"),
        (MISTRAL, "[TOOL_CALLS]read[ARGS]{broken"),
        (MISTRAL, "[TOOL_CALLS][]"),
        (LLAMA3, '{"name": "unknown", "parameters": {}}'),
        (LLAMA3, '{"name": "read", "parameters": {}} and so on'),
        (LLAMA3, '{"name": "Ada Lovelace", "born": 1815}'),
        (LLAMA3, '{"city": "Paris"}'),
        (LLAMA3, "<|python_tag|>print(1)"),
        (PLAIN, '{"name": "read"'),
        (PLAIN, "[1, 2]"),
    ],
)
def test_what_is_no_call_stays_visible_unchanged(dialect: Dialect, text: str) -> None:
    assert parse(text, dialect, TOOLS) == (text, [])


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("path", "007", "007"),
        ("path", "true", "true"),
        ("path", "\n  two\nlines\n\n", "  two\nlines\n"),
        ("line", "2", 2),
        ("line", "two", "two"),
        ("wide", "true", True),
        ("wide", "False", False),
        ("wide", "null", None),
        ("tags", '["a", 1]', ["a", 1]),
        ("free", "2", "2"),
        ("free", '{"a": 1}', {"a": 1}),
        ("unknown", "2", "2"),
    ],
)
def test_a_parameter_in_xml_becomes_what_its_schema_asks_for(parameter: str, text: str, value: Any) -> None:
    reply = f"<tool_call><function=edit><parameter={parameter}>{text}</parameter></function></tool_call>"
    assert calls_in(reply, QWEN3_CODER) == [("edit", {parameter: value})]


def test_a_json_answer_is_shown_as_soon_as_it_can_be_no_call() -> None:
    splitter = ToolCallSplitter(LLAMA3, TOOLS)
    assert splitter.feed('{"na') == []
    assert splitter.feed('tion": "') == ['{"nation": "']
    assert ToolCallSplitter(LLAMA3, TOOLS).feed("Hello") == ["Hello"]


PIECES = {
    QWEN3_CODER.name: ["<tool_call>", "</tool_call>", "<function=read>", "</function>", "<parameter=path>",
                       "a\n", "</parameter>", " "],
    MISTRAL.name: ["[TOOL_CALLS]", "read", "[ARGS]", '{"path": "a"}', '[{"name": "read"}]', " \n", "["],
    LLAMA3.name: ['{"name": "read"', ', "parameters": {}}', "<|python_tag|>", "; ", " \n", "{", "é"],
    PLAIN.name: ['{"name": "read"', ', "arguments": {}}', "<tool_call>", "</tool_call>", " \n", "[", "é"],
}  # fmt: skip


@given(st.sampled_from([QWEN3_CODER, MISTRAL, LLAMA3, PLAIN]), st.data())
def test_pieces_give_what_the_whole_gives(dialect: Dialect, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PIECES[dialect.name]), max_size=10)))
    splitter, read, rest = ToolCallSplitter(dialect, TOOLS), [], text
    while rest:
        size = data.draw(st.integers(1, 12))
        read += splitter.feed(rest[:size])
        rest = rest[size:]
    visible, calls = collect([*read, *splitter.finish()])
    whole_visible, whole_calls = parse(text, dialect, TOOLS)
    assert visible == whole_visible
    assert [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in whole_calls]
