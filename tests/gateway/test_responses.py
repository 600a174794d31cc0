"""OpenAI's Responses protocol, spoken by its SDK and in raw events: the same turns as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_gateway import MODEL, RunningGateway, running_gateway, user
from streams import events

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import Turn, TurnState

CALL = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    "strict": False,
}


def ask(gateway: RunningGateway, given: Any, **fields: Any) -> Any:
    return gateway.openai.responses.create(model=MODEL, input=given, **fields)


def turn_of(gateway: RunningGateway, response: Any) -> Turn:
    return gateway.turn(response.id.removeprefix("resp_"))


def post(gateway: RunningGateway, **fields: Any) -> Any:
    return gateway.http.post("/v1/responses", json={"model": MODEL, "input": "q", **fields})


def test_the_sdk_reads_a_plain_answer(gateway: RunningGateway) -> None:
    gateway.engine.say("Paris.")
    answer = ask(gateway, "Capital of France?", instructions="Be brief.")
    assert (answer.output_text, answer.status, answer.model) == ("Paris.", "completed", MODEL)
    turn = turn_of(gateway, answer)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        len(turn.prompt_ids),
        len(turn.response_ids),
    )
    same = gateway.chat({"role": "system", "content": "Be brief."}, user("Capital of France?"))
    assert same.prompt_ids == turn.prompt_ids


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script("Grüße 🙂"), {}),
        (Script(""), {}),
        (Script("<think>France, so</think>Paris."), {}),
        (Script("<think>never ended", finish="length"), {}),
        (Script("<think>x"), {"max_output_tokens": 7}),
        (Script("cut by the budget"), {"max_output_tokens": 6}),
        (Script(f"<think>so</think>Looking.\n{CALL}\n{CALL} Done."), {"tools": [TOOL]}),
        (Script(f"Looking.\n{CALL}"), {"tools": [TOOL], "tool_choice": "none"}),
        (Script(f"{CALL}{CALL}"), {"tools": [TOOL], "parallel_tool_calls": False}),
    ],
)
def test_the_stream_put_together_is_the_plain_body(
    gateway: RunningGateway, script: Script, fields: dict[str, Any]
) -> None:
    gateway.engine.say(script, script)
    plain = post(gateway, **fields).json()
    told = events(post(gateway, stream=True, **fields).text)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    final = told[-1]["response"]
    assert told[-1]["type"] == f"response.{plain['status']}"
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == final["output"]
    grown: dict[str, str] = {}
    for event in told:
        if event["type"].endswith(".delta"):
            grown[event["item_id"]] = grown.get(event["item_id"], "") + event["delta"]
    texts = {
        item["id"]: item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        for item in final["output"]
    }
    assert {name: text for name, text in texts.items() if text} == grown
    assert comparable(final) == comparable(plain)


def comparable(response: dict[str, Any]) -> dict[str, Any]:
    """Without what must differ between two answers: ids and times."""
    output = [{**item, "id": "", "call_id": ""} for item in response["output"]]
    return {**response, "id": "", "created_at": 0, "output": output}


def test_the_sdk_reads_a_stream_with_a_thought_words_and_a_call(gateway: RunningGateway) -> None:
    gateway.engine.say(f"<think>so</think>Look.{CALL}")
    with gateway.openai.responses.stream(model=MODEL, input="q", tools=[TOOL]) as stream:  # type: ignore[list-item]
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "response.reasoning_text.delta" in kinds
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "Look."


def test_a_cut_answer_is_incomplete_and_says_why(gateway: RunningGateway) -> None:
    gateway.engine.say("far too long")
    answer = ask(gateway, "q", max_output_tokens=3)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output_text == "far"


def test_a_call_and_its_output_sent_back_continue_the_turn(gateway: RunningGateway) -> None:
    gateway.engine.say(f"<think>which?</think>Looking.\n{CALL}", "It says hello.")
    first = ask(gateway, [user("What does a say?")], tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"path": "a"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "hello"}
    items = [item.model_dump(exclude_none=True) for item in first.output]
    second = ask(gateway, [user("What does a say?"), *items, output], tools=[TOOL])
    turn = turn_of(gateway, first)
    assert turn_of(gateway, second).parent_id == turn.id
    assert gateway.next_states(turn) == [("conversation", ["hello"])]
    assert turn.tools == (
        {
            "type": "function",
            "function": {"name": "read", "parameters": TOOL["parameters"], "strict": False},
        },
    )


def test_previous_response_id_continues_from_the_store(gateway: RunningGateway) -> None:
    gateway.engine.say("Paris.", "Berlin.")
    first = ask(gateway, "Capital of France?", instructions="Be brief.")
    second = ask(gateway, "No, of Germany", previous_response_id=first.id, instructions="Be kind.")
    before, after = turn_of(gateway, first), turn_of(gateway, second)
    assert (after.parent_id, after.session_id) == (before.id, before.session_id)
    assert gateway.next_states(before) == [("conversation", ["No, of Germany"])]
    prompt = gateway.engine.template.decode(after.prompt_ids)
    assert "Be kind." in prompt
    assert "Be brief." not in prompt, "instructions are those of one request"
    assert second.previous_response_id == first.id


def test_a_user_who_is_called_instructions_is_heard_all_the_same(gateway: RunningGateway) -> None:
    gateway.engine.say("Paris.", "Berlin.")
    named = [{"role": "user", "name": "instructions", "content": "Remember 42."}]
    first = gateway.http.post("/v1/chat/completions", json={"model": MODEL, "messages": named})
    second = ask(gateway, "next", previous_response_id=f"resp_{first.headers['x-turn-id']}")
    assert "Remember 42." in gateway.engine.template.decode(turn_of(gateway, second).prompt_ids)


def test_a_call_is_continued_with_its_output_alone(gateway: RunningGateway) -> None:
    gateway.engine.say(CALL, "hello")
    first = ask(gateway, "read a", tools=[TOOL])
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "hello"}
    ask(gateway, [output], previous_response_id=first.id)
    assert gateway.next_states(turn_of(gateway, first)) == [("conversation", ["hello"])]


def test_a_response_that_does_not_exist_or_broke_off_or_is_another_tenants_is_not_continued(
    tmp_path: Path,
) -> None:
    with running_gateway(tmp_path, api_keys=("alice", "bob")) as gateway:
        gateway.engine.say("fine", Script("half", fails_after=2))
        whole = ask(gateway, "q").id
        broken = f"resp_{post(gateway).headers['x-turn-id']}"
        bob = {"Authorization": "Bearer bob"}
        refused = [
            post(gateway, previous_response_id="resp_nothing"),
            post(gateway, previous_response_id=broken),
            gateway.http.post(
                "/v1/responses",
                json={"model": MODEL, "input": "q", "previous_response_id": whole},
                headers=bob,
            ),
        ]
        assert [response.status_code for response in refused] == [400] * 3
        assert {response.json()["error"]["code"] for response in refused} == {"previous_response_not_found"}


def test_sessions_kinds_and_headers_work_as_everywhere(gateway: RunningGateway) -> None:
    first = post(gateway, prompt_cache_key="k")
    second = post(gateway, input="other", prompt_cache_key="k")
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    side = gateway.http.post(
        "/v1/responses", json={"model": MODEL, "input": "q"}, headers={"X-Turn-Type": "side"}
    )
    assert gateway.turn(side.headers["x-turn-id"]).state is TurnState.SIDE


def test_input_items_of_every_kind_become_messages(gateway: RunningGateway) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "read a and b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "both"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}'},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "broken"},
        {"type": "function_call_output", "call_id": "c1", "output": "A"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "no such file"}],
        },
        {"role": "user", "content": "and?"},
    ]
    turn = turn_of(gateway, ask(gateway, items))
    assert [message["role"] for message in turn.messages] == [
        "developer",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    reply = turn.messages[2]
    assert (reply["content"], reply["reasoning_content"]) == ("Looking.", "both")
    assert [call["function"]["arguments"] for call in reply["tool_calls"]] == ['{"path": "a"}', "broken"]
    assert turn.messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "A"}


def test_hosted_tools_are_left_out(gateway: RunningGateway) -> None:
    (offered,) = turn_of(gateway, ask(gateway, "q", tools=[{"type": "web_search"}, TOOL])).tools
    assert offered["function"]["name"] == "read"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role"),
        ({"input": [{"content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "messages",
        ),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(
    gateway: RunningGateway, fields: dict[str, Any], param: str
) -> None:
    response = post(gateway, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_stream_that_breaks_ends_as_failed(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("half", fails_after=2))
    last = list(ask(gateway, "q", stream=True))[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.code == "server_error"
