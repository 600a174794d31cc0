"""What counts of a message, and which requests are helper calls, without a server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from openclaw_texts import (
    COMPLETION,
    CRON,
    HEARTBEAT,
    MEMORY_FLUSH,
    PAST_HEARTBEAT,
    REWORDED_HEARTBEAT,
    SUBAGENT,
    internal_context,
    person,
    runtime,
)

from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.gateway.pairing import real_messages
from openclaw_rl.gateway.sides import classify
from openclaw_rl.model import TurnKind

CALL = {"id": "call_1", "function": {"name": "f", "arguments": '{"a": 1, "b": [2]}'}}
CALLED = {"role": "assistant", "content": "let me look", "tool_calls": [CALL]}


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def asks(messages: list[dict[str, Any]], **more: Any) -> CompletionRequest:
    return CompletionRequest("m", tuple(messages), **more)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (says("user", "hi"), says("user", [{"type": "text", "text": "hi"}])),
        (says("user", "hi"), says("user", "hi \n")),
        (says("user", "a\nb"), says("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),
        (person("hi", key="k"), person("hi", key="other", extra=" | channel=x")),
        (person("hi", key="k"), person("hi")),
        (says("assistant", None), says("assistant", "")),
        (says("assistant", "x"), says("assistant", "<think>so</think>\n\nx", reasoning_content="so")),
        (says("assistant", "x"), says("assistant", "so</think>\n\nx")),
        (says("assistant", ""), says("assistant", "<think>cut off")),
        (says("assistant", "x"), says("assistant", "x", tool_calls=[])),
        (
            says("assistant", None, tool_calls=[CALL]),
            says(
                "assistant",
                "",
                tool_calls=[{"id": "call1", "function": {"name": "f", "arguments": '{"b":[2],"a":1}'}}],
            ),
        ),
        (
            says("assistant", None, tool_calls=[CALL]),
            says(
                "assistant", None, tool_calls=[{"function": {"name": "f", "arguments": {"a": 1, "b": [2]}}}]
            ),
        ),
        (says("tool", "out", tool_call_id="call_1"), says("tool", "out\n", tool_call_id="call1", name="f")),
    ],
)
def test_what_clients_change_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Conversation.of([one]).hashes == Conversation.of([other]).hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (says("user", "hi"), says("assistant", "hi")),
        (says("user", "hi"), says("user", "Hi")),
        (person("hi"), says("user", "hi")),
        (says("user", "a\nRuntime: agent=x"), says("user", "a")),
        (says("assistant", None), says("assistant", None, tool_calls=[CALL])),
        (
            says("assistant", None, tool_calls=[CALL]),
            says(
                "assistant", None, tool_calls=[{"function": {"name": "g", "arguments": '{"a": 1, "b": [2]}'}}]
            ),
        ),
        (
            says("assistant", None, tool_calls=[{"function": {"name": "f", "arguments": "{broken"}}]),
            says("assistant", None, tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
        ),
    ],
)
def test_what_people_and_models_say_counts(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Conversation.of([one]).hashes != Conversation.of([other]).hashes


def test_system_messages_and_injected_context_are_no_conversation() -> None:
    plain = Conversation.of([says("user", "hi")])
    wrapped = Conversation.of(
        [says("system", "s"), says("developer", "d"), says("user", "hi"), internal_context()]
    )
    assert wrapped == plain
    assert Conversation.of([says("system", "s")]).messages == ()
    assert Conversation.of([]).request_hash


def test_a_reply_extends_the_hash_to_what_a_continuation_has_as_prefix() -> None:
    request = Conversation.of([says("user", "hi")])
    continued = Conversation.of([says("user", "hi"), says("assistant", "x"), says("user", "no")])
    assert list(continued.continuations()) == [(request.hash_with(says("assistant", "x")), 2)]


def test_many_thoughts_in_one_reply_are_left_out_in_one_pass() -> None:
    """A text of 1 MB took seconds when each thought copied all that follows it."""
    thoughts = "<think></think>" * 70_000
    began = time.process_time()
    thinking = Conversation.of([says("assistant", f"a{thoughts}b<think>c")])
    assert time.process_time() - began < 1
    assert thinking.hashes == Conversation.of([says("assistant", "ab")]).hashes


def test_continuations_are_told_longest_first_and_need_something_new() -> None:
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    conversation = Conversation.of([says(role, str(n)) for n, role in enumerate(roles)])
    assert [length for _, length in conversation.continuations()] == [4, 2]


SYSTEM = says("system", "You are a personal assistant.")


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([says("system", "Generate a concise session title (3-6 words)"), says("user", "x")], "title"),
        ([says("system", "Write an Activity recap for someone"), says("user", "{}")], "activity recap"),
        (
            [says("developer", "You are a context summarization assistant. Your"), says("user", "x")],
            "compaction summary",
        ),
        ([SYSTEM, person("hi", key="agent:main:internal-session-effects:1-2")], "memory flush"),
        ([SYSTEM, person("hi"), says("assistant", "x"), MEMORY_FLUSH], "memory flush"),
        ([SYSTEM, MEMORY_FLUSH, says("assistant", "x"), says("tool", "ok")], "memory flush"),
        ([SYSTEM, person("hi"), says("assistant", "x"), HEARTBEAT], "heartbeat"),
        ([SYSTEM, person("hi"), says("assistant", "x"), PAST_HEARTBEAT], "heartbeat"),
        ([SYSTEM, REWORDED_HEARTBEAT, internal_context()], "heartbeat"),
        ([SYSTEM, SUBAGENT], "subagent"),
        ([SYSTEM, person("hi", key="agent:main:subagent:f6a5"), says("assistant", "x")], "subagent"),
        (
            [SYSTEM, person("hi"), says("assistant", "x"), COMPLETION, internal_context()],
            "subagent completion",
        ),
        ([SYSTEM, CRON], "cron"),
        (
            [SYSTEM, person("hi", key="agent:main:main"), says("assistant", "x"), says("user", "Any news?")],
            "message without a time stamp",
        ),
        ([SYSTEM, person("hi", key="agent:main:cron:d848")], "cron"),
    ],
)
def test_helper_calls_of_openclaw_are_recognised(messages: list[dict[str, Any]], kind: str) -> None:
    request = asks(messages)
    assert classify(request, None) == (TurnKind.SIDE, f"recognised as OpenClaw's {kind}")
    assert classify(request, TurnKind.MAIN) == (TurnKind.MAIN, "the client said main")


@pytest.mark.parametrize(
    "messages",
    [
        [says("user", "hi")],
        [SYSTEM, person("hi", key="agent:main:main"), internal_context()],
        [SYSTEM, person("hi"), says("assistant", "x"), HEARTBEAT, says("assistant", "y"), person("no")],
        [SYSTEM, says("user", "A background task completed. Is that right?")],
        [SYSTEM, says("user", "see my log:\nRuntime: agent=main | session=a:cron:b | x\nwhat is it?")],
        [SYSTEM, person("What is the\nCurrent time: and the\nReference UTC: of it?")],
        [says("user", "Generate a concise session title for my talk")],
        # A person may quote what helpers are asked.
        [SYSTEM, person("Pre-compaction memory flush. What is that?", key="agent:main:main")],
        [SYSTEM, person("hi", key="agent:main:main"), person("[cron:1 x] is in my log, why?")],
        [SYSTEM, person("[Subagent Context] is that a typo?", key="agent:main:main")],
        # Without any stamp nothing says that people's messages have one.
        [SYSTEM, says("user", "hi" + runtime()), says("assistant", "x"), says("user", "Any news?")],
        # After compaction, with a call and its result in what was kept
        [
            SYSTEM,
            says("user", "The conversation history before this point was compacted." + runtime()),
            person("list the files"),
            CALLED,
            says("tool", "x"),
        ],
    ],
)
def test_everything_else_is_main(messages: list[dict[str, Any]]) -> None:
    assert classify(asks(messages), None) == (TurnKind.MAIN, "nothing marks it as a helper call")


@pytest.mark.parametrize(
    ("new", "real"),
    [
        ([says("user", "a"), says("user", "b")], ["a", "b"]),
        ([says("tool", "1"), says("tool", "2"), says("user", "b")], ["1", "2", "b"]),
        ([HEARTBEAT], []),
        (
            [CRON, CALLED, says("tool", "t"), says("assistant", "NO_REPLY"), says("user", "b")],
            ["b"],
        ),
        ([HEARTBEAT, says("assistant", "HEARTBEAT_OK"), says("user", "b")], ["b"]),
        ([HEARTBEAT, says("assistant", "All is well. HEARTBEAT_OK"), says("user", "b")], ["b"]),
        # What was said aloud in between is what the person answers.
        ([HEARTBEAT, says("assistant", "Your train leaves."), says("user", "b")], []),
        ([COMPLETION, says("assistant", "It is done."), says("user", "b")], []),
        ([says("user", "a"), HEARTBEAT, says("assistant", "Look!"), says("user", "b")], ["a"]),
        ([says("user", "a"), says("assistant", "x"), says("user", "b")], ["a"]),
        ([COMPLETION, says("assistant", "x")], []),
    ],
)
def test_the_next_state_is_what_people_and_tools_said_directly(
    new: list[dict[str, Any]], real: list[str]
) -> None:
    assert [message["content"] for message in real_messages(new)] == real
