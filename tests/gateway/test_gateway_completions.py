"""One turn over HTTP: the two forms of an answer, and what the store holds of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from openai import BadRequestError
from running_gateway import MODEL, RunningGateway, user

from openclaw_rl.evals.byte_template import END
from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import TurnKind, TurnState

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def test_the_openai_sdk_reads_a_plain_answer(gateway: RunningGateway) -> None:
    gateway.engine.say("Paris.")
    answer = gateway.openai.chat.completions.create(model=MODEL, messages=[user("Capital of France?")])
    assert answer.choices[0].message.content == "Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.system_fingerprint == "policy-0"
    stored = gateway.turn(answer.id.removeprefix("chatcmpl-"))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(stored.response_ids) == len("Paris.") + 1
    assert answer.usage.prompt_tokens == len(stored.prompt_ids)


def test_the_openai_sdk_reads_a_stream(gateway: RunningGateway) -> None:
    gateway.engine.say("Grüße 🙂 aus Paris")
    chunks = list(gateway.openai.chat.completions.create(model=MODEL, messages=[user("?")], stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Grüße 🙂 aus Paris"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-2]] == [None] * (len(chunks) - 2)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_headers_name_session_turn_and_version(gateway: RunningGateway, stream: bool) -> None:
    response = gateway.post([user("hi")], stream=stream)
    turn = gateway.turn(response.headers["x-turn-id"])
    assert response.headers["x-session-id"] == turn.session_id
    assert response.headers["x-policy-version"] == "0"
    assert f"chatcmpl-{turn.id}" in response.text


def test_a_turn_is_durable_before_the_final_chunk(gateway: RunningGateway) -> None:
    gateway.engine.say("kept")
    with gateway.stream([user("?")]) as (response, chunks):
        for chunk in chunks:
            if chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                turn = gateway.store.conversations.turn(response.headers["x-turn-id"])
                assert turn is not None
                assert turn.state is TurnState.WAITING_NEXT_STATE
                assert turn.reply == {"role": "assistant", "content": "kept"}
                return
    pytest.fail("there was no final chunk")


def test_the_store_holds_exactly_what_was_sampled(gateway: RunningGateway) -> None:
    gateway.engine.say("ok")
    turn = gateway.chat(
        user("hi"), temperature=0.25, top_p=0.5, top_k=7, seed=3, max_tokens=9, max_completion_tokens=8
    )
    prompt_ids, sampling, _ = gateway.engine.asked[-1]
    assert turn.prompt_ids == prompt_ids
    assert gateway.engine.template.decode(turn.response_ids, skip_special_tokens=False) == f"ok{END}"
    assert turn.logprobs == pytest.approx([-0.5, -0.5 - 1 / 1024, -0.5 - 2 / 1024])
    assert turn.sampling == sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 7)
    assert (sampling.seed, sampling.max_tokens) == (3, 8)
    assert turn.kind is TurnKind.MAIN
    assert turn.kind_reason == "nothing marks it as a helper call"


@pytest.mark.parametrize(("asked", "drawn_at"), [(1e-50, 0), (1e-38, 0), (9e-6, 0), (1e-5, 1e-5)])
def test_a_temperature_next_to_nothing_is_none(
    gateway: RunningGateway, asked: float, drawn_at: float
) -> None:
    """Logits divided by it would be no numbers, for everybody in that step."""
    assert gateway.chat(user("hi"), temperature=asked).sampling.temperature == drawn_at


def test_null_means_absent_and_defaults_come_from_the_settings(gateway: RunningGateway) -> None:
    optional = (
        "tools tool_choice temperature top_p top_k max_tokens max_completion_tokens stop seed n stream "
        "stream_options logprobs top_logprobs response_format user metadata prompt_cache_key session_id "
        "turn_type session_done"
    )
    turn = gateway.chat(user("hi"), **dict.fromkeys(optional.split()))
    assert (turn.sampling.temperature, turn.sampling.top_p, turn.sampling.max_tokens) == (0.7, 1.0, 512)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "top_p": 0, "top_k": 0, "max_tokens": 1, "seed": 0, "n": 1},
        {"logprobs": True, "top_logprobs": None},
        {"logprobs": True, "top_logprobs": 0},
        {"top_k": -1, "stop": [], "tools": [], "metadata": {}, "response_format": {"type": "text"}},
        {"store": False, "parallel_tool_calls": True, "reasoning_effort": "high", "rl_tag": {"x": 1}},
        {"tool_choice": "auto", "stop": "", "user": "", "session_id": " "},
    ],
)
def test_odd_but_legal_fields_are_answered(gateway: RunningGateway, fields: dict[str, Any]) -> None:
    assert gateway.post([user("hi")], **fields).status_code == 200


def test_a_stop_string_ends_the_reply_and_frees_the_engine(gateway: RunningGateway) -> None:
    gateway.engine.say("yes STOP and much more")
    turn = gateway.chat(user("?"), stop=["STOP"])
    assert turn.reply["content"] == "yes "
    assert turn.finish_reason == "stop"
    assert gateway.engine.template.decode(turn.response_ids) == "yes STOP"
    assert gateway.engine.cancels == 1


def test_a_stop_string_in_the_last_token_counts_as_stop(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("yes é", finish="length"))
    turn = gateway.chat(user("?"), stop=["é"])
    assert (turn.reply["content"], turn.finish_reason) == ("yes ", "stop")


def test_a_reply_cut_by_length_is_a_normal_turn(gateway: RunningGateway) -> None:
    gateway.engine.say("far too long")
    turn = gateway.chat(user("?"), max_completion_tokens=1)
    assert (turn.reply["content"], turn.finish_reason) == ("f", "length")
    assert turn.state is TurnState.WAITING_NEXT_STATE


def test_logprobs_are_given_in_openai_form(gateway: RunningGateway) -> None:
    gateway.engine.say("é")
    content = gateway.post([user("?")], logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert [token["logprob"] for token in content] == pytest.approx([-0.5, -0.5 - 1 / 1024, -0.5 - 2 / 1024])
    assert content[-1] == {
        "token": END,
        "logprob": content[-1]["logprob"],
        "bytes": list(END.encode()),
        "top_logprobs": [],
    }
    assert content[0]["bytes"] is None  # half a character


def test_a_reply_of_calls_alone_has_null_content(gateway: RunningGateway) -> None:
    gateway.engine.say('<tool_call>{"name": "read", "arguments": {}}</tool_call>')
    message = gateway.post([user("?")], tools=TOOLS).json()["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "read", "arguments": "{}"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 9}, "n: Input should be less than or equal to 8"),
        ({"top_logprobs": 3}, "top_logprobs: send logprobs true with it"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs: Input should be less"),
    ],
)
def test_what_is_not_supported_is_refused_in_words(
    gateway: RunningGateway, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRequestError, match=named):
        gateway.openai.chat.completions.create(model=MODEL, messages=[user("?")], extra_body=fields)


def test_models_are_listed_with_their_context_and_version(gateway: RunningGateway) -> None:
    (listed,) = gateway.http.get("/v1/models").json()["data"]
    assert listed["id"] == MODEL
    assert listed["object"] == "model"
    assert listed["context_length"] == listed["max_model_len"] == 4096
    assert listed["policy_version"] == 0
    assert abs(listed["created"] - time.time()) < 60
    assert gateway.http.get(f"/v1/models/{MODEL}").json() == listed
    assert gateway.openai.models.list().data[0].id == MODEL
    assert gateway.http.get("/v1/models/other").status_code == 404
