"""What agents send to Chat Completions beyond plain words, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_gateway import MODEL, RunningGateway, assistant, eventually, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import TurnState

READ = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}


def test_fault_1_a_developer_message_is_a_system_message(gateway: RunningGateway) -> None:
    asked = [gateway.chat(says(role, "Be brief."), user("hi")) for role in ("developer", "system")]
    assert asked[0].prompt_ids == asked[1].prompt_ids


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_fault_4_content_parts_are_the_text_they_hold_for_every_role(
    gateway: RunningGateway, role: str
) -> None:
    more = {"tool_call_id": "call_1"} if role == "tool" else {}
    forms = ("one\ntwo", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])
    asked = [gateway.chat(user("a"), says(role, form, **more), user("b")) for form in forms]
    assert asked[0].prompt_ids == asked[1].prompt_ids


def test_fault_4_null_content_is_no_content(gateway: RunningGateway) -> None:
    forms: list[dict[str, Any]] = [{"content": None}, {"content": ""}, {}]
    asked = [
        gateway.chat(user("a"), {"role": "assistant", **form, "tool_calls": [called("{}")]}, user("b"))
        for form in forms
    ]
    assert len({turn.prompt_ids for turn in asked}) == 1


@pytest.mark.parametrize(
    "arguments", ['{"path": "a"}', {"path": "a"}, "", None, "null", '{"path": ', "[1]", "not JSON", '"x"']
)
def test_fault_5_replayed_calls_are_read_whatever_their_arguments(
    gateway: RunningGateway, arguments: Any
) -> None:
    gateway.chat(
        user("read a"),
        says("assistant", None, tool_calls=[called(arguments)]),
        says("tool", "text of a", tool_call_id="call_1"),
        tools=TOOLS,
    )


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


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        None,
        {"type": "object"},
        {"type": "object", "properties": {"a": {}, "b": {"description": "no type"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "[a-z]{3"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, None]}}},
        {"type": "object", "properties": {"a": {"type": ["integer", "null"], "default": None}}},
        True,
    ],
)
def test_fault_6_a_tool_may_have_any_schema(gateway: RunningGateway, parameters: Any) -> None:
    gateway.engine.say(READ)
    tool = {"type": "function", "function": {"name": "read", "parameters": parameters, "strict": True}}
    turn = gateway.chat(user("go"), tools=[tool])
    assert turn.tools == (tool,)
    assert turn.reply["tool_calls"][0]["function"]["name"] == "read"


def test_tools_that_are_no_functions_are_left_out_and_counted(gateway: RunningGateway) -> None:
    tools = [{"type": "web_search"}, *TOOLS, {"type": "custom", "custom": {"name": "x"}}]
    assert list(gateway.chat(user("go"), tools=tools).tools) == TOOLS
    report = eventually(
        lambda: next(
            (r for r in gateway.store.reports().values() if r.detail.get("ignored_fields") == 2), None
        )
    )
    assert report.name == "server"


def test_fault_2_unknown_fields_are_ignored_and_counted(gateway: RunningGateway) -> None:
    gateway.chat(user("hi"), store=True, reasoning_effort="high", rl_tag={"deep": [1]})
    gateway.chat(user("hi"), store=None)
    eventually(lambda: gateway.store.reports()["server"].detail.get("ignored_fields") == 4)


def test_fault_3_of_two_names_for_the_budget_the_smaller_counts(gateway: RunningGateway) -> None:
    for fields, budget in (
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 3}, 3),
    ):
        assert gateway.chat(user("hi"), **fields).sampling.max_tokens == budget


@pytest.mark.parametrize("field", ["top_logprobs", "logprobs", "stop", "seed", "n", "stream_options"])
@pytest.mark.parametrize("value", [None, 0, [], {}, False])
def test_fault_14_odd_optional_values_are_answered_or_refused_by_name(
    gateway: RunningGateway, field: str, value: Any
) -> None:
    response = gateway.post([user("hi")], **{"logprobs": True, field: value})
    assert response.status_code in (200, 400)
    if response.status_code == 400:
        assert response.json()["error"]["param"] == field


@pytest.mark.parametrize("options", [None, {}, {"include_usage": True}, {"include_usage": False}])
def test_faults_20_21_usage_always_comes_right_before_done(
    gateway: RunningGateway, options: dict[str, Any] | None
) -> None:
    gateway.engine.say("five!")
    body = {"model": MODEL, "messages": [user("?")], "stream": True}
    if options is not None:
        body["stream_options"] = options
    lines = gateway.http.post("/v1/chat/completions", json=body).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    last = json.loads(lines[-2].removeprefix("data: "))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len("five!") + 1
    assert json.loads(lines[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"


def test_fault_7_a_call_that_cannot_be_read_stays_visible_and_is_marked_and_counted(
    gateway: RunningGateway,
) -> None:
    broken = '<tool_call>{"name": "read", "arguments": {"path": }</tool_call>'
    gateway.engine.say(broken, "words")
    turn = gateway.chat(user("read a"), tools=TOOLS)
    assert turn.reply == {"role": "assistant", "content": broken, "unread_tool_calls": 1}
    assert turn.state is TurnState.WAITING_NEXT_STATE
    assert gateway.chat(user("read a"), assistant(broken), user("no"), tools=TOOLS).parent_id == turn.id
    eventually(lambda: gateway.store.reports()["server"].detail.get("unread_tool_calls") == 1)


def test_the_mark_of_an_unread_call_is_not_told_to_the_client(gateway: RunningGateway) -> None:
    gateway.engine.say("<tool_call>oops")
    message = gateway.post([user("q")], tools=TOOLS).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<tool_call>oops"}


def test_fault_24_a_thought_is_given_apart_from_the_answer(gateway: RunningGateway) -> None:
    gateway.engine.say("<think>\nFrance, so\n</think>\n\nParis.")
    message = gateway.post([user("Capital?")]).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Paris.", "reasoning_content": "France, so"}


def test_fault_24_a_thought_that_is_cut_off_is_all_thought_and_says_why(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("<think>on and on and", finish="length"))
    choice = gateway.post([user("q")]).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "on and on and",
    }


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
