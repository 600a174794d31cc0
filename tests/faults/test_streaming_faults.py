"""Faults 17 to 26 and 117 of docs/faults.md: streams, and what is recorded of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user
from streams import joined, whole

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import Turn, TurnState

CHAT, MESSAGES, RESPONSES = PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
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
    "a\u2028b\u2029c\x85d",
    "words",
)


def body_of(**fields: Any) -> dict[str, Any]:
    """One question in any protocol; each leaves alone what it does not know."""
    return {"model": MODEL, "messages": [user("q")], "input": "q", "max_tokens": 400, **fields}


def data_of(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """What an SDK counts as progress: events with data. Comments are none."""
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def agree(gateway: RunningGateway, script: Script, fields: dict[str, Any]) -> None:
    """The same reply, asked for as a body and as a stream, is the same to a client and in the store."""
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
        # What a parser swallows is captured all the same.
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
        (Script(CALL), {"tools": TOOLS, "temperature": 0}),
        (Script(f"Looking.\n{CALL}\n{CALL}"), {"tools": TOOLS}),
        (Script(f"Looking.\n{CALL}\n{CALL}"), {"tools": TOOLS, "parallel_tool_calls": False}),
        (Script(f"Looking.\n{CALL}"), {"tools": TOOLS, "tool_choice": "none"}),
        (Script("cut <tool_call>{", finish="length"), {"tools": TOOLS}),
        (Script("<think>never ended", finish="length"), {}),
        (Script(f"<think>so {CALL}</think>\n\n{CALL}"), {"tools": TOOLS, "n": 2}),
    ],
)
def test_fault_17_a_stream_put_together_is_the_plain_body(
    gateway: RunningGateway, script: Script, fields: dict[str, Any]
) -> None:
    """Calls are in the body and missing from the stream; here both are written from one result."""
    agree(gateway, script, fields)


def test_fault_17_whatever_the_reply_and_the_request(tmp_path: Path) -> None:
    """Two implementations agree in the cases that somebody thought of; here in drawn ones too."""
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
            agree(gateway, Script(text), fields)

        always()


def test_fault_18_a_streamed_call_ends_with_tool_calls(gateway: RunningGateway) -> None:
    """A streamed call ends with `stop`, and the agent's loop with it; here with `tool_calls`."""
    gateway.engine.say(f"Looking.\n{CALL}")
    with gateway.stream([user("read a")], tools=TOOLS) as (_, chunks):
        assert joined(list(chunks))["finish"] == ["tool_calls"]


def test_fault_19_deltas_of_calls_are_whole_and_their_ids_are_unique_in_the_session(
    gateway: RunningGateway,
) -> None:
    """Two calls without index or id become one; here each has its own, over all turns of a session."""
    gateway.engine.say(f"Looking.\n{CALL}\n{CALL}", f"{CALL}{CALL}")
    history = [user("read both")]
    ids: list[str] = []
    for _ in range(2):
        with gateway.stream(history, tools=TOOLS) as (response, chunks):
            received = [chunk for chunk in chunks if chunk["choices"]]
        calls = [call for chunk in received for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
        assert [call["index"] for call in calls] == [0, 1]
        for call in calls:
            assert call["type"] == "function"
            assert call["function"] == {"name": "read", "arguments": '{"path": "a.txt"}'}
        assert {chunk["choices"][0]["index"] for chunk in received} == {0}
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in received]
        assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
        reply = gateway.turn(response.headers["x-turn-id"]).reply
        assert [call["id"] for call in reply["tool_calls"]] == [call["id"] for call in calls]
        ids += [call["id"] for call in calls]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "text"} for call in calls]
        history += [reply, *results]
    assert len(set(ids)) == 4


ASKED_FOR_USAGE: list[dict[str, Any]] = [
    {},
    {"stream_options": None},
    {"stream_options": {}},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": False}},
]


@pytest.mark.parametrize("options", ASKED_FOR_USAGE)
def test_fault_20_a_stream_tells_its_usage_whether_asked_or_not(
    gateway: RunningGateway, options: dict[str, Any]
) -> None:
    """Without usage a client thinks the context empty and never compacts; here the true numbers come."""
    with gateway.stream([user("five?")], **options) as (response, chunks):
        (usage,) = joined(list(chunks))["usage"]
    turn = gateway.turn(response.headers["x-turn-id"])
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
        len(turn.prompt_ids),
        len(turn.response_ids),
        len(turn.prompt_ids) + len(turn.response_ids),
    )


@pytest.mark.parametrize("options", ASKED_FOR_USAGE)
def test_fault_21_the_usage_comes_before_done_and_nothing_after(
    gateway: RunningGateway, options: dict[str, Any]
) -> None:
    """SDKs stop reading at [DONE], so usage behind it is lost; here [DONE] is the last that comes."""
    gateway.engine.say("five!")
    events = gateway.post([user("?")], stream=True, **options).text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    usage, finish = (json.loads(event.removeprefix("data: ")) for event in (events[-2], events[-3]))
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len("five!") + 1
    assert finish["choices"][0]["finish_reason"] == "stop"


def test_fault_22_a_stream_begins_at_once_and_goes_on_with_every_token(gateway: RunningGateway) -> None:
    """The whole reply is made before any of it is sent; here tokens leave as they are sampled."""
    gateway.engine.say(Script("0123456789", delay=0.1))
    started = time.monotonic()
    with gateway.stream([user("?")]) as (_, chunks):
        arrivals = [
            (time.monotonic() - started, chunk["choices"][0]["delta"]) for chunk in chunks if chunk["choices"]
        ]
    seconds, deltas = zip(*arrivals, strict=True)
    assert deltas[:2] == ({"role": "assistant", "content": ""}, {"content": "0"})
    assert seconds[0] < seconds[-1] / 2
    assert seconds[1] < seconds[-1] / 2
    assert len(arrivals) == 12  # role, ten pieces, finish


IDLE_LIMIT = 1.0
"""Seconds without data after which the client of these tests gives up on a stream."""


SLOW = Script("a", finish="length", delay=1.5 * IDLE_LIMIT)


@pytest.mark.parametrize(
    ("path", "script", "shown"),
    [
        (CHAT, SLOW, '"delta":{"content":""}'),
        (MESSAGES, SLOW, '"type":"ping"'),
        (RESPONSES, SLOW, '"type":"response.in_progress"'),
        (CHAT, Script("<think>thought</think>a", delay=0.08), '"reasoning_content":"t"'),
    ],
)
def test_fault_23_a_client_that_gives_up_on_silence_survives_a_slow_model(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, path: str, script: Script, shown: str
) -> None:
    """Comments and hidden thoughts are no progress to a client's timer; here data comes all the while."""
    monkeypatch.setattr("openclaw_rl.gateway.delivery.IDLE_SECONDS", IDLE_LIMIT / 10)
    gateway.engine.say(script)
    last, received = time.monotonic(), []
    with gateway.http.stream("POST", path, json=body_of(stream=True), timeout=IDLE_LIMIT) as response:
        for event in data_of(response):
            assert time.monotonic() - last < IDLE_LIMIT
            last = time.monotonic()
            received.append(json.dumps(event, separators=(",", ":")))
    assert sum(shown in event for event in received) > (script is SLOW)
    turn = gateway.turn(response.headers["x-turn-id"])
    assert turn.state is TurnState.WAITING_NEXT_STATE
    assert turn.reply["content"] == "a"


def test_fault_23_a_thought_is_streamed_while_it_is_thought(gateway: RunningGateway) -> None:
    """Long hidden thinking looks like a hang; here thoughts are data of their own as they come."""
    gateway.engine.say(Script("<think>01234</think>x", delay=0.03))
    with gateway.stream([user("?")]) as (_, chunks):
        deltas = [(chunk["choices"][0]["delta"], time.monotonic()) for chunk in chunks if chunk["choices"]]
    thoughts = [(delta["reasoning_content"], at) for delta, at in deltas if "reasoning_content" in delta]
    assert [text for text, _ in thoughts] == list("01234")
    assert thoughts[-1][1] - thoughts[0][1] > 0.03, "they came one by one"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "thought", "answer", "finish"),
    [
        (Script("<think>\nFrance, so\n</think>\n\nParis."), "France, so", "Paris.", "stop"),
        (Script("<think>on and on and", finish="length"), "on and on and", "", "length"),
        (Script("Paris."), "", "Paris.", "stop"),
    ],
)
def test_fault_24_thought_and_answer_are_split_by_one_rule(
    gateway: RunningGateway, stream: bool, script: Script, thought: str, answer: str, finish: str
) -> None:
    """Thoughts leak into answers, or swallow them; here one rule splits, and an empty answer says why."""
    gateway.engine.say(script)
    if stream:
        with gateway.stream([user("Capital?")]) as (_, chunks):
            told = joined(list(chunks))
    else:
        told = whole(gateway.post([user("Capital?")]).json())
    assert (told["reasoning"].strip(), told["content"], told["finish"]) == (thought, answer, [finish])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_fault_25_hanging_up_stops_the_engine_and_aborts_the_turn(
    gateway: RunningGateway, path: str, stream: bool
) -> None:
    """The client is gone and the server goes on; here sampling stops, and the turn never trains."""
    gateway.engine.say(Script("x" * 400, delay=0.02))
    with suppress(httpx2.TimeoutException):
        if stream:
            with gateway.http.stream("POST", path, json=body_of(stream=True)) as response:
                for _ in zip(range(4), data_of(response), strict=False):
                    pass
        else:
            gateway.http.post(path, json=body_of(), timeout=0.3)
    eventually(lambda: gateway.engine.cancels == 1, seconds=1)
    turn = only_turn(gateway, TurnState.ABORTED)
    assert (turn.state_reason, turn.finish_reason) == ("client hung up", "aborted")
    assert len(turn.response_ids) < 100
    assert (turn.reply["content"] or "") == "x" * len(turn.response_ids)
    time.sleep(0.1)
    assert gateway.engine.sampled == len(turn.response_ids)


def only_turn(gateway: RunningGateway, state: TurnState) -> Turn:
    (turn,) = eventually(lambda: gateway.store.conversations.turns(state=state))
    return turn


def test_fault_26_words_that_nobody_saw_are_in_no_later_turn(gateway: RunningGateway) -> None:
    """An abandoned reply goes on into the session and is judged; here only a delivered one counts."""
    named = {"X-Session-Id": "chat"}
    gateway.engine.say("a", Script("unseen words " * 9, delay=0.01), "b", "c")
    first = gateway.chat(user("q"), headers=named)
    history = [user("q"), assistant("a"), user("x")]
    with gateway.http.stream(
        "POST", CHAT, json=body_of(messages=history, stream=True), headers=named
    ) as response:
        next(data_of(response))
    cut = only_turn(gateway, TurnState.ABORTED)
    again = gateway.chat(*history, headers=named)
    after = gateway.chat(*history, assistant("b"), user("thanks"), headers=named)
    assert (again.parent_id, after.parent_id) == (first.id, again.id)
    assert gateway.next_states(cut) == []
    assert gateway.next_states(first) == [("conversation", ["x"])]
    assert gateway.next_states(again) == [("conversation", ["thanks"])]
    for turn in (again, after):
        assert "unseen" not in gateway.engine.template.decode(turn.prompt_ids)


def test_fault_26_a_reply_that_the_client_left_unread_is_superseded_when_it_asks_again(
    gateway: RunningGateway,
) -> None:
    """A reply is all sent, but the client had gone; its next request says so, and here that is heard."""
    gateway.engine.say("quick", "b")
    with gateway.stream([user("q")], session_id="s") as (response, _):
        pass
    left = response.headers["x-turn-id"]
    eventually(lambda: gateway.store.conversations.turn(left))
    again = gateway.chat(user("q"), session_id="s")
    assert gateway.turn(left).state in (TurnState.SUPERSEDED, TurnState.ABORTED)
    assert gateway.next_states(gateway.turn(left)) == []
    assert again.state is TurnState.WAITING_NEXT_STATE


@pytest.mark.parametrize("path", PATHS)
def test_fault_117_a_stream_is_recorded_token_by_token_though_nobody_asks_for_tokens(
    gateway: RunningGateway, path: str
) -> None:
    """A recorder between client and engine loses the token ids of streams; here they are the engine's own."""
    reply = f"<think>so</think>Grüße 🙂\n{CALL}"
    gateway.engine.say(reply)
    with gateway.http.stream("POST", path, json=body_of(stream=True)) as response:
        pieces = sum(1 for _ in data_of(response))
    turn = gateway.turn(response.headers["x-turn-id"])
    fed, sampling, _ = gateway.engine.asked[-1]
    template = gateway.engine.template
    drawn = [*template.tokenizer.encode(reply, add_special_tokens=False).ids, min(template.stop_ids)]
    assert turn.prompt_ids == fed
    assert list(turn.response_ids) == drawn
    assert turn.logprobs == pytest.approx([-0.5 - position / 1024 for position in range(len(drawn))])
    assert turn.sampling == sampling
    assert pieces > 10, "it was no stream"
