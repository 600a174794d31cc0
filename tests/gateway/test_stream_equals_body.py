"""A stream, put together, is the plain body of the same reply, whatever the reply and the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running_gateway import RunningGateway, running_gateway, user
from streams import joined, whole

from openclaw_rl.evals.scripted_engine import Script

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
PIECES = (
    CALL,
    '<tool_call>{"name": "write", "arguments": "{\\"é\\": 1}"}</tool_call>',
    "<tool_call>{nonsense}</tool_call>",
    "<tool_call>",
    "<think>",
    "</think>",
    "Grüße 🙂 ",
    "STOP",
    " \n\n",
    "words",
)


def check(gateway: RunningGateway, script: Script, fields: dict[str, Any]) -> None:
    gateway.engine.scripts.clear()
    choices = fields.get("n", 1)
    gateway.engine.say(*[script] * 2 * choices)
    body = gateway.post([user("?")], logprobs=True, **fields).json()
    with gateway.stream([user("?")], logprobs=True, **fields) as (response, chunks):
        received = list(chunks)
        turn_ids = response.headers["x-turn-id"].split(", ")
    for index in range(choices):
        streamed = joined(received, index)
        assert streamed == whole(body, index)
        stored = gateway.turn(turn_ids[index])
        assert streamed["content"] == (stored.reply["content"] or "")
        assert streamed["reasoning"] == stored.reply.get("reasoning_content", "")
        # Fault 27: what a parser swallows is captured all the same.
        assert len(streamed["logprobs"]) == len(stored.response_ids) == len(stored.logprobs)
    sampled = sum(len(joined(received, index)["logprobs"]) for index in range(choices))
    assert body["usage"]["completion_tokens"] == sampled


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script("words without an end", finish="length"), {}),
        (Script("cut by the budget"), {"max_tokens": 6}),
        (Script("one two STOP three"), {"stop": "STOP"}),
        (Script("one two END"), {"stop": ["nothing", "END"]}),
        (Script(""), {}),
        (Script(f"Looking.\n{CALL}\n{CALL}"), {"tools": TOOLS}),
        (Script(f"Looking.\n{CALL}\n{CALL}"), {"tools": TOOLS, "parallel_tool_calls": False}),
        (Script(f"Looking.\n{CALL}"), {"tools": TOOLS, "tool_choice": "none"}),
        (Script("cut <tool_call>{", finish="length"), {"tools": TOOLS}),
        (Script("<think>never ended", finish="length"), {}),
        (Script(f"<think>so {CALL}</think>\n\n{CALL}"), {"tools": TOOLS, "n": 2}),
    ],
)
def test_a_stream_agrees_with_the_plain_body(
    gateway: RunningGateway, script: Script, fields: dict[str, Any]
) -> None:
    check(gateway, script, fields)


def test_faults_17_18_24_any_stream_put_together_is_the_plain_body(tmp_path: Path) -> None:
    replies = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
    requests = st.fixed_dictionaries(
        {},
        optional={
            "tools": st.just(TOOLS),
            "stop": st.sampled_from(["STOP", ["words", "</think>"]]),
            "max_tokens": st.integers(1, 60),
            "n": st.integers(1, 3),
            "parallel_tool_calls": st.booleans(),
        },
    )
    with running_gateway(tmp_path) as gateway:

        @settings(max_examples=60, deadline=None)
        @given(replies, requests)
        def always(text: str, fields: dict[str, Any]) -> None:
            check(gateway, Script(text), fields)

        always()
