"""Tool calls in text: what is a call, what stays visible, and that pieces give the same as the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.policy.tool_calls import ToolCallSplitter, collect, parse

READ = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
WRITE = '<tool_call>{"name": "write", "arguments": {"path": "b", "text": "é"}}</tool_call>'


def calls_in(text: str) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in parse(text)[1]]


def test_calls_are_taken_out_of_the_visible_text() -> None:
    visible, calls = parse(f"Let me look.\n\n{READ}\n{WRITE}\n")
    assert visible == "Let me look."
    assert [call.name for call in calls] == ["read", "write"]
    assert json.loads(calls[1].arguments) == {"path": "b", "text": "é"}


def test_ids_are_unique_and_of_openais_form() -> None:
    ids = [call.id for call in parse(READ * 3)[1]]
    assert len(set(ids)) == 3
    assert all(call_id.startswith("call_") and int(call_id[5:], 16) >= 0 for call_id in ids)


def test_text_after_a_call_stays_visible() -> None:
    assert parse(f"before {READ} after")[0] == "beforeafter"
    assert parse(f"{READ}\n\nDone.\n")[0] == "Done.\n"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "f"}</tool_call>', {}),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', {"a": 1}),
        ('<tool_call>{"name": "f", "arguments": {"a": "line\nline"}}</tool_call>', {"a": "line\nline"}),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', {"a": 1}),
        ('<tool_call>{"name": "f", "arguments": {"a": "<tool_call>"}}</tool_call>', {"a": "<tool_call>"}),
    ],
)
def test_what_models_really_write_is_a_call(text: str, arguments: object) -> None:
    assert parse(text)[0] == ""
    assert calls_in(text) == [("f", arguments)]


@pytest.mark.parametrize(
    "text",
    [
        "  plain text, nothing else\n",
        "a < b and <tool is no tag",
        "ends with <tool_call",
        "never closed <tool_call>{",
        "no JSON <tool_call>read a.txt</tool_call> at all",
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "not json"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>',
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
)
def test_what_is_no_call_stays_visible_unchanged(text: str) -> None:
    assert parse(text) == (text, [])


def test_a_call_after_a_broken_one_is_found() -> None:
    broken = "<tool_call>{oops}</tool_call>"
    visible, calls = parse(f"{broken}\n{READ}")
    assert visible == broken
    assert [call.name for call in calls] == ["read"]
    assert calls_in(f"<tool_call>{READ}") == [("read", {"path": "a"})]


def test_text_is_shown_as_soon_as_it_can_be_no_tag() -> None:
    splitter = ToolCallSplitter()
    assert splitter.feed("Sure") == ["Sure"]
    assert splitter.feed(" \n<tool") == []
    assert splitter.feed("box>") == [" \n<toolbox>"]
    assert splitter.feed(" <tool_call>{") == []
    assert splitter.finish() == [" <tool_call>", "{"]


@given(
    st.lists(st.sampled_from([READ, WRITE, "<tool_call>", "</tool_call>", "{x}", " \n", "a<", "é"])),
    st.data(),
)
def test_pieces_give_what_the_whole_gives(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    splitter, read = ToolCallSplitter(), []
    while text:
        size = data.draw(st.integers(1, 12))
        read += splitter.feed(text[:size])
        text = text[size:]
    visible, calls = collect([*read, *splitter.finish()])
    whole_visible, whole_calls = parse("".join(parts))
    assert visible == whole_visible
    assert [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in whole_calls]
