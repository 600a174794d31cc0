"""Whatever a body holds, the answer is a refusal in words: never a crash, a hang or a lost turn."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from malformed_bodies import LARGE_NO_JSON, NO_ARGUMENTS, NO_JSON, NO_REQUEST
from running_gateway import MODEL, RunningGateway, running_gateway, user

from openclaw_rl.model import TurnState

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
COMPLETIONS = (CHAT, MESSAGES, RESPONSES)
ROUTES = (*COMPLETIONS, "/v1/messages/count_tokens", "/v1/feedback", "/v1/sessions/s/outcome")
LONGEST_SECONDS = 10
"""Of computing, the client's included; a busy machine does not count."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One for all: what one body breaks, the next would notice."""
    with running_gateway(tmp_path_factory.mktemp("malformed")) as running:
        running.http.timeout = 60
        yield running


def refused(gateway: RunningGateway, path: str, body: bytes) -> str:
    """The message of the refusal, which came in time, in the route's form, and left no turn."""
    before = len(gateway.store.conversations.turns())
    started = time.process_time()
    response = gateway.http.post(path, content=body)
    assert time.process_time() - started < LONGEST_SECONDS
    assert 400 <= response.status_code < 500, response.text
    told = response.json()
    if path.startswith(MESSAGES):
        assert set(told) == {"type", "error"}
        assert set(told["error"]) == {"type", "message"}
    else:
        assert set(told["error"]) == {"message", "type", "param", "code"}
        assert told["error"]["type"] == "invalid_request_error"
    assert len(gateway.store.conversations.turns()) == before
    message: str = told["error"]["message"]
    assert 10 < len(message) < 500
    return message


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON.keys())
def test_a_body_that_is_no_json_object_is_refused_by_every_route(
    gateway: RunningGateway, path: str, body: Callable[[], bytes]
) -> None:
    assert "request body" in refused(gateway, path, body())


@pytest.mark.parametrize("body", LARGE_NO_JSON.values(), ids=LARGE_NO_JSON.keys())
def test_megabytes_that_are_no_json_object_are_refused(
    gateway: RunningGateway, body: Callable[[], bytes]
) -> None:
    assert "request body" in refused(gateway, CHAT, body())


@pytest.mark.parametrize("path", COMPLETIONS)
@pytest.mark.parametrize("body", NO_REQUEST.values(), ids=NO_REQUEST.keys())
def test_a_body_that_is_no_request_is_refused_by_every_protocol(
    gateway: RunningGateway, path: str, body: Callable[[], bytes]
) -> None:
    refused(gateway, path, body())


@pytest.mark.parametrize("body", NO_ARGUMENTS.values(), ids=NO_ARGUMENTS.keys())
def test_arguments_that_cannot_be_read_are_refused(
    gateway: RunningGateway, body: Callable[[], bytes]
) -> None:
    refused(gateway, CHAT, body())


def test_a_prompt_too_long_to_count_is_said_to_be_so(gateway: RunningGateway) -> None:
    body = NO_REQUEST["a message of ten megabytes"]()
    assert "prompt is too long: at least" in refused(gateway, "/v1/messages/count_tokens", body)


def test_a_name_given_twice_is_told(gateway: RunningGateway) -> None:
    assert "two values for 'model'" in refused(gateway, CHAT, b'{"model": "tiny", "model": "other"}')


# Any valid request with anything at all in one place

VALID: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "stop": ["x"],
        "stream_options": {"include_usage": True},
        "metadata": {"session_id": "s"},
        **dict.fromkeys(
            ("tool_choice", "temperature", "top_p", "top_k", "max_tokens", "seed", "n", "stream")
        ),
        **dict.fromkeys(("logprobs", "top_logprobs", "response_format", "user", "session_done", "turn_type")),
    },
    MESSAGES: {
        "model": MODEL,
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "u"},
        **dict.fromkeys(("stop_sequences", "stream", "temperature", "top_p", "top_k", "thinking")),
    },
    RESPONSES: {
        "model": MODEL,
        "instructions": "s",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "text": {"format": {"type": "text"}},
        **dict.fromkeys(("tool_choice", "previous_response_id", "temperature", "top_p", "max_output_tokens")),
        **dict.fromkeys(("stream", "metadata", "user", "conversation", "background", "prompt")),
    },
}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["user", "tool", "text", "function", "tool_use", "<think>", MODEL, f"{MODEL}@0"]),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "function", "arguments", "input"]),
            inside,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [at, *(place for name, child in children for place in places(child, (*at, name)))][
        0 if at else 1 :
    ]


def changed(body: dict[str, Any], place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(body)
    inside: Any = made
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    return made


@pytest.mark.parametrize("path", VALID)
def test_the_valid_requests_are_answered(gateway: RunningGateway, path: str) -> None:
    assert gateway.http.post(path, json=VALID[path]).status_code == 200


@pytest.mark.parametrize("path", VALID)
def test_a_request_with_anything_in_one_place_is_answered_or_refused(
    gateway: RunningGateway, path: str
) -> None:
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(places(VALID[path])), ANYTHING)
    def always(place: tuple[str | int, ...], value: Any) -> None:
        response = gateway.http.post(path, json=changed(VALID[path], place, value))
        assert response.status_code in (200, 400, 404), (place, value, response.text)
        if response.status_code != 200:
            assert len(response.json()["error"]["message"]) > 10

    always()


def test_after_all_of_it_the_server_answers_and_its_turns_are_whole(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("still there?"))
    assert turn.reply["content"] == "fine"
    states = gateway.store.conversations.count_turns()
    assert states.get(TurnState.ABORTED, 0) == 0
