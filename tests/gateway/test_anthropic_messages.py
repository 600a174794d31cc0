"""Anthropic's protocol, spoken by its own SDK and in raw events: the same turns as any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError, BadRequestError
from running_gateway import MODEL, RunningGateway, running_gateway, user
from streams import events

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import TurnState

CALL = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
TOOL: dict[str, Any] = {
    "name": "read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.fixture
def claude(gateway: RunningGateway) -> Iterator[Anthropic]:
    with Anthropic(base_url=gateway.url, api_key="unused", max_retries=0) as client:
        yield client


def ask(client: Anthropic, *messages: dict[str, Any], **fields: Any) -> Any:
    given: Any = {"model": MODEL, "max_tokens": 400, "messages": list(messages), **fields}
    return client.messages.create(**given)


def post(gateway: RunningGateway, **fields: Any) -> Any:
    body = {"model": MODEL, "max_tokens": 400, "messages": [user("q")], **fields}
    return gateway.http.post("/v1/messages", json=body)


def test_the_sdk_reads_a_plain_answer(gateway: RunningGateway, claude: Anthropic) -> None:
    gateway.engine.say("Paris.")
    answer = ask(claude, user("Capital of France?"), system="Be brief.")
    assert [(block.type, block.text) for block in answer.content] == [("text", "Paris.")]
    assert (answer.role, answer.model, answer.stop_reason) == ("assistant", MODEL, "end_turn")
    turn = gateway.turn(answer.id.removeprefix("msg_"))
    assert answer.usage.input_tokens == len(turn.prompt_ids)
    assert answer.usage.output_tokens == len(turn.response_ids)
    same = gateway.chat({"role": "system", "content": "Be brief."}, user("Capital of France?"))
    assert same.prompt_ids == turn.prompt_ids


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script("Grüße 🙂"), {}),
        (Script(""), {}),
        (Script("<think>France, so</think>Paris."), {}),
        (Script("<think>never ended", finish="length"), {}),
        (Script("one two STOP three"), {"stop_sequences": ["STOP"]}),
        (Script("cut by the budget"), {"max_tokens": 6}),
        (Script(f"<think>so</think>Looking.\n{CALL}\n{CALL} Done."), {"tools": [TOOL]}),
        (Script(f"Looking.\n{CALL}"), {"tools": [TOOL], "tool_choice": {"type": "none"}}),
        (
            Script(f"{CALL}{CALL}"),
            {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
    ],
)
def test_the_sdks_stream_is_the_plain_body(
    gateway: RunningGateway, claude: Anthropic, script: Script, fields: dict[str, Any]
) -> None:
    gateway.engine.say(script, script)
    plain = ask(claude, user("?"), **fields)
    request: Any = {"model": MODEL, "max_tokens": 400, "messages": [user("?")], **fields}
    with claude.messages.stream(**request) as stream:
        streamed = stream.get_final_message()

    def comparable(message: Any) -> dict[str, Any]:
        told = message.model_dump(exclude={"id"}, exclude_none=True)
        for block in told["content"]:
            block.pop("id", None)
            block.pop("signature", None)
            block.pop("parsed_output", None)
        return dict(told)

    assert comparable(streamed) == comparable(plain)
    assert plain.usage.output_tokens == len(gateway.turn(plain.id.removeprefix("msg_")).response_ids)


def test_the_events_of_a_stream_come_in_anthropics_order(gateway: RunningGateway) -> None:
    gateway.engine.say(f"<think>so</think>Look.{CALL}")
    told = events(post(gateway, stream=True, tools=[TOOL]).text)
    kinds = [event["type"] for event in told]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    starts = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use"]
    blocks = [(event["type"], event["index"]) for event in told if "index" in event]
    assert [index for kind, index in blocks if kind == "content_block_stop"] == [0, 1, 2]
    assert blocks == sorted(blocks, key=lambda event: event[1]), "one block at a time"
    assert told[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_a_stop_sequence_is_named(gateway: RunningGateway, claude: Anthropic) -> None:
    gateway.engine.say("yes STOP and more")
    answer = ask(claude, user("?"), stop_sequences=["no", "STOP"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "STOP")


def test_a_tool_is_called_and_its_result_is_the_next_state(
    gateway: RunningGateway, claude: Anthropic
) -> None:
    gateway.engine.say(f"<think>which?</think>Looking.\n{CALL}", "It says hello.")
    question = user("What does a say?")
    first = ask(claude, question, tools=[TOOL])
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert (call.name, call.input) == ("read", {"path": "a"})
    result = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "hello"}]}
        ],
    }
    replayed = [block.model_dump(exclude_none=True) for block in first.content]
    second = ask(claude, question, {"role": "assistant", "content": replayed}, result, tools=[TOOL])
    turn = gateway.turn(first.id.removeprefix("msg_"))
    assert turn.tools[0]["function"] == {
        "name": "read",
        "description": "Reads a file.",
        "parameters": TOOL["input_schema"],
    }
    assert gateway.turn(second.id.removeprefix("msg_")).parent_id == turn.id
    (state,) = gateway.store.conversations.next_states(turn.id)
    assert state.messages == (
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "hello"}]},
    )


def test_a_conversation_may_change_its_protocol_and_goes_on(
    gateway: RunningGateway, claude: Anthropic
) -> None:
    gateway.engine.say("a", "b")
    first = ask(claude, user("q"))
    second = gateway.chat(user("q"), {"role": "assistant", "content": "a"}, user("no"))
    assert second.parent_id == first.id.removeprefix("msg_")


SESSION = "user_1f2e_account_33_session_a41f"
"""A user id that names a session, as a coding agent sends it."""


def test_sessions_kinds_and_headers_work_as_everywhere(gateway: RunningGateway, claude: Anthropic) -> None:
    raw = claude.messages.with_raw_response.create(
        model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "q"}], metadata={"user_id": SESSION}
    )
    turn = gateway.turn(raw.headers["x-turn-id"])
    assert raw.headers["x-policy-version"] == "0"
    again = ask(claude, user("other"), metadata={"user_id": SESSION})
    assert gateway.turn(again.id.removeprefix("msg_")).session_id == turn.session_id
    one, other = (ask(claude, user(text), metadata={"user_id": "u1"}) for text in ("one", "two"))
    chats = {gateway.turn(answer.id.removeprefix("msg_")).session_id for answer in (one, other)}
    assert len(chats) == 2  # of one user, who is no session
    side = post(gateway, turn_type="side")
    assert gateway.turn(side.headers["x-turn-id"]).state is TurnState.SIDE


def test_feedback_takes_the_id_of_a_message(gateway: RunningGateway, claude: Anthropic) -> None:
    answer = ask(claude, user("q"))
    given = gateway.http.post("/v1/feedback", json={"response_id": answer.id, "score": 1})
    assert given.json()["turn_id"] == answer.id.removeprefix("msg_")


def test_system_blocks_and_user_blocks_are_text(gateway: RunningGateway, claude: Anthropic) -> None:
    blocks = [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "And kind."},
    ]
    answer = ask(claude, {"role": "user", "content": blocks}, system=blocks)
    prompt = gateway.engine.template.decode(gateway.turn(answer.id.removeprefix("msg_")).prompt_ids)
    assert prompt.count("Be brief.\nAnd kind.") == 2


def test_tokens_are_counted_without_a_turn(gateway: RunningGateway, claude: Anthropic) -> None:
    request: Any = {"model": MODEL, "messages": [user("q")], "system": "Be brief.", "tools": [TOOL]}
    counted = claude.messages.count_tokens(**request)
    assert gateway.store.conversations.turns() == []
    answer = ask(claude, user("q"), system="Be brief.", tools=[TOOL])
    assert answer.usage.input_tokens == counted.input_tokens


def test_tools_that_only_anthropics_models_know_are_left_out(
    gateway: RunningGateway, claude: Anthropic
) -> None:
    answer = ask(claude, user("q"), tools=[{"type": "web_search_20250305", "name": "web_search"}, TOOL])
    (offered,) = gateway.turn(answer.id.removeprefix("msg_")).tools
    assert offered["function"]["name"] == "read"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "max_tokens: "),
        ({"messages": []}, "messages: "),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "messages: the last one"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages.0.content.0: this model reads text only, not content blocks of type 'image'",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "x"}]}]}
                ]
            },
            "messages.0.content.0.content.0: ",
        ),
        ({"messages": [{"role": "user", "content": [{"text": "no type"}]}]}, "messages.0.content.0.type: "),
        ({"tool_choice": {"type": "any"}}, "tool_choice: a call is required, but no tool was offered"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name: "),
        ({"temperature": 9}, "temperature: "),
    ],
)
def test_errors_have_anthropics_form(gateway: RunningGateway, fields: dict[str, Any], message: str) -> None:
    response = post(gateway, **fields)
    assert response.status_code == 400
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith(message)


def test_an_overflow_says_what_these_clients_compact_on(claude: Anthropic) -> None:
    with pytest.raises(BadRequestError, match=r"prompt is too long: \d+ tokens > 4096 maximum"):
        ask(claude, user("x" * 5000))


def test_an_unknown_model_and_a_wrong_key_are_told_in_the_same_form(tmp_path: Path) -> None:
    with running_gateway(tmp_path, api_keys=("right",)) as gateway:
        for key, status, kind in (("wrong", 401, "authentication_error"), ("right", 404, "not_found_error")):
            client = Anthropic(base_url=gateway.url, api_key=key, max_retries=0)
            with client, pytest.raises(APIStatusError) as refused:
                ask(client, user("q"), model="claude-opus")
            assert refused.value.status_code == status
            told = refused.value.response.json()
            assert told == {"type": "error", "error": {"type": kind, "message": told["error"]["message"]}}
            assert refused.value.body == told


def test_a_stream_that_breaks_ends_with_an_error_event(gateway: RunningGateway, claude: Anthropic) -> None:
    gateway.engine.say(Script("half", fails_after=2), Script("half", fails_after=2))
    assert events(post(gateway, stream=True).text)[-1]["error"]["type"] == "api_error"
    stream = claude.messages.create(
        model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "q"}], stream=True
    )
    with pytest.raises(APIStatusError, match="incomplete"):
        list(stream)
