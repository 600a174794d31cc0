"""What a reply is made of: the thought, the words, the calls, and what only looks like a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.model import Tool
from openclaw_rl.policy.dialects import HERMES, LLAMA3, MISTRAL, Dialect, ToolCall
from openclaw_rl.policy.reply import Part, ReplyReader, Thought, opens_thought

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
TOOLS: list[Tool] = [{"type": "function", "function": {"name": "f"}}]


def told(parts: list[Part]) -> tuple[str, str, list[str]]:
    """The thought, the visible text and the names of the calls."""
    return (
        "".join(part.text for part in parts if isinstance(part, Thought)),
        "".join(part for part in parts if isinstance(part, str)),
        [part.name for part in parts if isinstance(part, ToolCall)],
    )


def read(text: str, *, inside: bool = False, tools: list[Tool] = TOOLS) -> tuple[str, str, list[str]]:
    reader = ReplyReader(HERMES, tools, inside_thought=inside)
    return told([*reader.feed(text), *reader.finish()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris.", ("", "Paris.", [])),
        ("<think>\nso\n</think>\n\nParis.\n", ("so", "Paris.\n", [])),
        (" \n<think>so</think>Paris.", ("so", "Paris.", [])),
        ("<think></think>Paris.", ("", "Paris.", [])),
        ("<think>never ended", ("never ended", "", [])),
        ("<think>half a tag </thi", ("half a tag </thi", "", [])),
        ("<think>a</think>b<think>c</think>", ("a", "b<think>c</think>", [])),
        ("I <think> so", ("", "I <think> so", [])),
        ("stray</think>end", ("", "stray</think>end", [])),
        (f"<think>{CALL}</think>{CALL}", (CALL, "", ["f"])),
        (" \n", ("", " \n", [])),
        ("<thin", ("", "<thin", [])),
    ],
)
def test_thought_and_answer_are_split_by_one_rule(text: str, expected: tuple[str, str, list[str]]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so\n</think>\nParis.", ("so", "Paris.", [])),
        ("<think>so</think>Paris.", ("<think>so", "Paris.", [])),
        ("never ended", ("never ended", "", [])),
        (f"{CALL}</think>{CALL}", (CALL, "", ["f"])),
    ],
)
def test_a_reply_whose_prompt_opened_the_thought_begins_within_it(
    text: str, expected: tuple[str, str, list[str]]
) -> None:
    assert read(text, inside=True) == expected


def test_a_prompt_opens_a_thought_when_it_ends_with_the_tag() -> None:
    assert opens_thought("<|assistant|>\n<think>\n")
    assert not opens_thought("<|assistant|>\n<think>\n\n</think>\n\n")
    assert not opens_thought("<|assistant|>\n")


def test_a_thought_is_told_while_it_grows() -> None:
    reader = ReplyReader(HERMES, TOOLS, inside_thought=False)
    assert reader.feed("<thi") == []
    assert reader.feed("nk>\nFrance") == [Thought("France")]
    assert reader.feed(", so ") == [Thought(", so")]
    assert reader.feed("on </th") == [Thought(" on")]
    assert reader.feed("ink>\n") == []
    assert reader.feed("Paris") == ["Paris"]


def test_without_tools_nothing_is_read_as_a_call() -> None:
    assert read(CALL, tools=[]) == ("", CALL, [])


@pytest.mark.parametrize(
    ("dialect", "text", "count"),
    [
        (HERMES, "plain", 0),
        (HERMES, CALL, 0),
        (HERMES, "<tool_call>{oops}</tool_call> words <tool_call>", 2),
        (HERMES, "<think><tool_call>{oops}</think>fine", 0),
        (HERMES, "<function=f><parameter=a>1</parameter></function>", 1),
        (HERMES, "<tool_call>\n<function=f>\n</function>\n</tool_call>", 1),
        (MISTRAL, CALL, 1),
        (MISTRAL, "[TOOL_CALLS]oops", 1),
        (LLAMA3, '{"name": "f", "parameters": ', 1),
        (LLAMA3, '{"name": "f", "parameters": {}}', 0),
        (LLAMA3, '{"city": "Paris"}', 0),
    ],
)
def test_what_looks_like_a_call_and_is_none_is_counted(dialect: Dialect, text: str, count: int) -> None:
    reader = ReplyReader(dialect, TOOLS, inside_thought=False)
    reader.feed(text)
    reader.finish()
    assert reader.unread_calls == count


@given(
    st.lists(st.sampled_from([CALL, "<think>", "</think>", "<tool_call>", " \n", "a<", "é"])),
    st.booleans(),
    st.data(),
)
def test_pieces_give_what_the_whole_gives(parts: list[str], inside: bool, data: st.DataObject) -> None:
    text = "".join(parts)
    reader, found, rest = ReplyReader(HERMES, TOOLS, inside_thought=inside), [], text
    while rest:
        size = data.draw(st.integers(1, 12))
        found += reader.feed(rest[:size])
        rest = rest[size:]
    assert told([*found, *reader.finish()]) == read(text, inside=inside)
