"""A model that could never write a call is made to, through each protocol, by a real server."""

from __future__ import annotations

import json
from typing import Any

from anthropic import Anthropic
from jsonschema import Draft202012Validator
from openai import OpenAI
from running_processes import House, eventually

from openclaw_rl.model import TurnState

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
PARAMETERS: Any = {"name": "get_weather", "parameters": SCHEMA}
ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


def check(arguments: Any) -> None:
    Draft202012Validator(SCHEMA).validate(arguments)


def test_a_forced_call_comes_back_parsed_through_every_protocol_and_never_trains(roomy_house: House) -> None:
    house = roomy_house
    house.start("up")
    house.wait_until_ready()
    with (
        OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0) as openai,
        Anthropic(base_url=house.url, api_key="any", max_retries=0) as claude,
    ):
        chat = openai.chat.completions.create(
            model="roomy",
            messages=ASKED,
            tools=[{"type": "function", "function": PARAMETERS}],
            tool_choice="required",
            seed=1,
        )
        (call,) = chat.choices[0].message.tool_calls or ()
        check(json.loads(call.function.arguments))  # type: ignore[union-attr]
        assert chat.choices[0].finish_reason == "tool_calls"

        with openai.responses.stream(
            model="roomy",
            input=ASKED,
            tools=[{"type": "function", "strict": True, **PARAMETERS}],
            tool_choice={"type": "function", "name": "get_weather"},
        ) as stream:
            (item,) = stream.get_final_response().output
        check(json.loads(item.arguments))  # type: ignore[union-attr]

        message = claude.messages.create(
            model="roomy",
            max_tokens=300,
            messages=ASKED,
            tools=[{"name": "get_weather", "input_schema": SCHEMA}],  # type: ignore[list-item]
            tool_choice={"type": "any"},
        )
        (block,) = message.content
        check(block.input)  # type: ignore[union-attr]
        assert message.stop_reason == "tool_use"

        answer = openai.chat.completions.create(
            model="roomy",
            messages=ASKED,
            response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA}},  # type: ignore[typeddict-item]
            logprobs=True,
            top_logprobs=2,
        )
        check(json.loads(answer.choices[0].message.content or ""))
        tokens = answer.choices[0].logprobs.content or [] if answer.choices[0].logprobs else []
        assert {len(token.top_logprobs) for token in tokens} == {2}

        reply = chat.choices[0].message.model_dump(exclude_none=True)
        result = {"role": "tool", "tool_call_id": call.id, "content": "Traceback: no such city"}
        openai.chat.completions.create(model="roomy", messages=[*ASKED, reply, result], max_tokens=5)
    eventually(lambda: house.count(TurnState.SET_ASIDE) == 1, 30)
    ((state, reason, count),) = [
        found for found in house.store.conversations.reasons() if found[0] is TurnState.SET_ASIDE
    ]
    assert (state, count) == (TurnState.SET_ASIDE, 1)
    assert "grammar" in reason
    assert reason in house.run("status", "--data-dir", str(house.data)).stdout
