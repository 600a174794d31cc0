"""What agents send to Chat Completions beyond plain words, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_gateway import RunningGateway, assistant, eventually, user

READ = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_two_calls_in_one_reply_get_two_results_as_their_next_state(gateway: RunningGateway) -> None:
    other = '<tool_call>{"name": "read", "arguments": {"path": "b"}}</tool_call>'
    gateway.engine.say(f"Both.\n{READ}\n{other}", "done")
    first = gateway.chat(user("read both"), tools=TOOLS)
    replayed = [
        {
            "id": call["id"].replace("_", ""),
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":")),
            },
        }
        for call in first.reply["tool_calls"]
    ]
    results = [says("tool", f"text of {n}", tool_call_id=call["id"]) for n, call in enumerate(replayed)]
    second = gateway.chat(
        user("read both"), says("assistant", "Both.", tool_calls=replayed), *results, tools=TOOLS
    )
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["text of 0", "text of 1"])]


def test_a_client_that_wants_one_call_at_a_time_gets_one_and_sampling_ends_with_it(
    gateway: RunningGateway,
) -> None:
    gateway.engine.say(f"Both.\n{READ}\n{READ} and more words")
    turn = gateway.chat(user("read both"), tools=TOOLS, parallel_tool_calls=False)
    assert len(turn.reply["tool_calls"]) == 1
    assert turn.finish_reason == "tool_calls"
    assert gateway.engine.template.decode(turn.response_ids) == f"Both.\n{READ}"
    assert gateway.engine.cancels == 1


def test_tools_that_are_no_functions_are_left_out_and_counted(gateway: RunningGateway) -> None:
    tools = [{"type": "web_search"}, *TOOLS, {"type": "custom", "custom": {"name": "x"}}]
    assert list(gateway.chat(user("go"), tools=tools).tools) == TOOLS
    report = eventually(
        lambda: next(
            (r for r in gateway.store.reports().values() if r.detail.get("ignored_fields") == 2), None
        )
    )
    assert report.name == "server"


def test_the_mark_of_an_unread_call_is_not_told_to_the_client(gateway: RunningGateway) -> None:
    gateway.engine.say("<tool_call>oops")
    message = gateway.post([user("q")], tools=TOOLS).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<tool_call>oops"}


@pytest.mark.parametrize(
    "sent_back",
    [
        assistant("Paris."),
        says("assistant", "Paris.", reasoning_content="France, so"),
        assistant("<think>France, so</think>\n\nParis."),
        assistant("\n\nParis."),
    ],
)
def test_a_reply_with_a_thought_is_continued_however_the_client_keeps_it(
    gateway: RunningGateway, sent_back: dict[str, Any]
) -> None:
    gateway.engine.say("<think>\nFrance, so\n</think>\n\nParis.")
    first = gateway.chat(user("Capital?"))
    assert gateway.chat(user("Capital?"), sent_back, user("thanks")).parent_id == first.id
