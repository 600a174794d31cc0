"""What is kept of replies that another server makes: turns, next states, and why none of it trains."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from answers import (
    MESSAGES_EVENTS,
    MODEL,
    USAGE,
    assistant,
    chat_body,
    chunk,
    last_usage,
    named,
    response_body,
    response_events,
    user,
)
from anthropic import Anthropic
from other_server import EVENTS, Answer, OtherServer, body, stream
from running_recorder import KEY, RunningRecorder, running_recorder

from openclaw_rl.gateway.upstream.recording import LARGE_BODY, UNREADABLE
from openclaw_rl.model import OTHER_MODEL, Judgement, TurnKind, TurnState, Vote

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/"}'}}
MADE_BY = f"recorded: made by {MODEL}, not by the policy"


def ask(recorder: RunningRecorder, *messages: Any, streamed: bool, **fields: Any) -> str:
    """Ask by the openai client; returns the text of the reply."""
    if not streamed:
        answer = recorder.openai.chat.completions.create(model="big", messages=list(messages), **fields)
        return answer.choices[0].message.content or ""
    chunks = recorder.openai.chat.completions.create(
        model="big", messages=list(messages), stream=True, **fields
    )
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_is_recorded_and_paired(
    recorder: RunningRecorder, upstream: OtherServer, streamed: bool
) -> None:
    if streamed:
        upstream.answers.append(
            stream(
                chunk(role="assistant", content="the "), chunk(content="answer"), chunk("stop"), last_usage()
            )
        )
    else:
        upstream.answers.append(body(chat_body("the answer")))
    upstream.answers.append(body(chat_body("sorry")))
    assert ask(recorder, user("q"), streamed=streamed) == "the answer"
    ask(recorder, user("q"), assistant("the answer"), user("that is wrong"), streamed=False)
    first, second = recorder.turns()
    assert first.state is TurnState.WAITING_JUDGE
    assert (first.model, first.policy_version, first.finish_reason) == (MODEL, OTHER_MODEL, "stop")
    assert (first.prompt_ids, first.response_ids, first.logprobs) == ((), (), ())
    assert first.reply == assistant("the answer")
    assert (second.parent_id, second.session_id) == (first.id, first.session_id)
    (state,) = recorder.store.conversations.next_states(first.id)
    assert state.messages == (user("that is wrong"),)
    assert recorder.store.recordings.usage(first.id) == USAGE


def test_a_tool_call_streamed_in_pieces_is_one_call_and_its_result_the_next_state(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "ls", "arguments": ""}}
    upstream.answers += [
        stream(
            chunk(role="assistant", content=None, reasoning_content="Hm."),
            chunk(tool_calls=[begun]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"path"'}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": ': "/"}'}}]),
            chunk("tool_calls"),
        ),
        body(chat_body("two files")),
    ]
    ask(recorder, user("list"), streamed=True, tools=TOOLS)
    result = {"role": "tool", "tool_call_id": "call_1", "content": "a b"}
    replayed = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    ask(recorder, user("list"), replayed, result, streamed=False, tools=TOOLS)
    first, second = recorder.turns()
    assert first.reply == {
        "role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]
    }  # fmt: skip
    assert first.tools == tuple(TOOLS)
    assert first.finish_reason == "tool_calls"
    assert second.parent_id == first.id
    assert recorder.store.conversations.next_states(first.id)[0].messages == (result,)


def test_calls_of_one_slot_with_different_ids_are_different_calls(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    calls = [{"index": 0, **CALL}, {"index": 0, **CALL, "id": "call_2"}]
    upstream.answers.append(stream(chunk(tool_calls=[calls[0]]), chunk("tool_calls", tool_calls=[calls[1]])))
    ask(recorder, user("list"), streamed=True, tools=TOOLS)
    (turn,) = recorder.turns()
    assert [call["id"] for call in turn.reply["tool_calls"]] == ["call_1", "call_2"]


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropics_messages_are_recorded_and_paired(
    recorder: RunningRecorder, upstream: OtherServer, streamed: bool
) -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "/"}},
    ]
    whole = {
        "id": "msg_abc", "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 9},
    }  # fmt: skip
    upstream.answers += [named(*MESSAGES_EVENTS) if streamed else body(whole), body(whole)]
    asked: Any = {
        "model": "big",
        "max_tokens": 50,
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
    }
    with Anthropic(base_url=recorder.url, api_key=KEY, max_retries=0) as client:
        if streamed:
            with client.messages.stream(messages=[user("list")], **asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(messages=[user("list")], **asked)
        assert message.content[-1].input == {"path": "/"}
        result = {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "a b"}],
        }
        replayed = assistant([block.model_dump(exclude_none=True) for block in message.content])
        client.messages.create(messages=[user("list"), replayed, user([result])], **asked)
    assert upstream.last.headers["authorization"] == f"Bearer {KEY}"
    assert upstream.last.headers["anthropic-version"]
    first, second = recorder.turns()
    assert first.reply["reasoning_content"] == "Hm."
    assert first.reply["content"] == "Let me look."
    assert json.loads(first.reply["tool_calls"][0]["function"]["arguments"]) == {"path": "/"}
    assert (first.model, first.finish_reason) == (MODEL, "tool_calls")
    assert second.parent_id == first.id
    assert recorder.store.recordings.usage(first.id) == {"input_tokens": 7, "output_tokens": 9}
    (state,) = recorder.store.conversations.next_states(first.id)
    assert state.messages[0]["role"] == "tool"


@pytest.mark.parametrize("streamed", [False, True])
def test_responses_are_recorded_and_paired_by_the_upstreams_own_ids(
    recorder: RunningRecorder, upstream: OtherServer, streamed: bool
) -> None:
    upstream.answers.append(named(*response_events()) if streamed else body(response_body()))
    upstream.answers.append(body(response_body("Better.", id="resp_2")))
    if streamed:
        with recorder.openai.responses.stream(model="big", input="look") as events:
            first_answer = events.get_final_response()
    else:
        first_answer = recorder.openai.responses.create(model="big", input="look")
    assert first_answer.output_text == "Let me look."
    recorder.openai.responses.create(model="big", input="no", previous_response_id=first_answer.id)
    first, second = recorder.turns()
    assert (first.reply["content"], first.reply["reasoning_content"]) == ("Let me look.", "Hm.")
    assert (first.model, first.finish_reason, first.state) == (MODEL, "stop", TurnState.WAITING_JUDGE)
    assert second.parent_id == first.id
    assert [message["content"] for message in second.messages] == ["look", "Let me look.", "no"]


def test_a_response_that_was_cut_or_failed_says_so(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers += [body(response_body(status="incomplete")), body(response_body(status="failed"))]
    for _ in range(2):
        recorder.openai.responses.create(model="big", input="look")
    cut, failed = recorder.turns()
    assert (cut.state, cut.finish_reason) == (TurnState.WAITING_NEXT_STATE, "length")
    assert (failed.state, failed.state_reason) == (
        TurnState.ABORTED, "the upstream reported an error within its answer"
    )  # fmt: skip


def test_each_choice_is_a_turn(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers += [
        stream(chunk(index=1, content="two"), chunk(content="one"), chunk("stop"), chunk("stop", index=1)),
        body(chat_body("only one")),
    ]
    answer = recorder.chat(user("q"), n=2, stream=True)
    assert [turn.reply["content"] for turn in recorder.turns()] == ["one", "two"]
    assert answer.headers["x-turn-id"].split(", ") == [turn.id for turn in recorder.turns()]
    recorder.chat(user("another"), n=2)
    assert [turn.reply["content"] for turn in recorder.turns()] == ["one", "two", "only one"]


def test_helper_calls_are_side_turns(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers += [body(chat_body("A title"))] * 2
    system = {"role": "system", "content": "Generate a concise session title for it."}
    assert recorder.turn(recorder.chat(system, user("q"))).kind is TurnKind.SIDE
    answer = recorder.http.post(
        "/v1/chat/completions",
        json={"model": "big", "messages": [user("q")]},
        headers={"X-Turn-Type": "side"},
    )
    assert recorder.turn(answer).state is TurnState.SIDE


def test_the_turn_is_on_disk_before_the_caller_learns_that_the_reply_ended(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    gate = threading.Semaphore(0)
    upstream.answers.append(stream(chunk(content="a"), chunk("stop"), last_usage(), gate=gate))
    request = {"model": "big", "messages": [user("q")], "stream": True}
    with recorder.http.stream("POST", "/v1/chat/completions", json=request) as answer:
        pieces = answer.iter_raw()
        gate.release()
        next(pieces)
        assert recorder.turns() == []
        gate.release()
        assert b'"stop"' in next(pieces)
        (turn,) = recorder.turns()
        assert recorder.store.recordings.usage(turn.id) is None
        gate.release()
        assert b'"usage"' in next(pieces)
        assert recorder.store.recordings.usage(turn.id) == USAGE
        gate.release()
        assert b"[DONE]" in b"".join(pieces)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_whose_turn_cannot_be_written_is_not_given_whole(
    recorder: RunningRecorder, upstream: OtherServer, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(recorder.store.recordings, "add", full_disk)
    upstream.answers.append(stream(chunk(content="a"), chunk("stop")) if streamed else body(chat_body("ok")))
    answer = recorder.chat(user("q"), stream=streamed)
    assert "The turn could not be recorded" in answer.text
    assert answer.status_code == (200 if streamed else 500)
    assert "[DONE]" not in answer.text
    assert recorder.turns() == []


def test_images_are_named_and_not_kept_and_pair_all_the_same(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers += [body(chat_body("a cat")), body(chat_body("a dog"))]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    asked = user([{"type": "text", "text": "What is it?"}, picture])
    recorder.chat(asked)
    recorder.chat(asked, assistant("a cat"), user("no, a dog"))
    assert json.loads(upstream.last.body)["messages"][0] == asked
    first, second = recorder.turns()
    assert second.parent_id == first.id
    assert first.messages[0]["content"][0] == {"type": "text", "text": "What is it?"}
    assert first.messages[0]["content"][1]["text"].startswith("[image_url, not kept: sha256 ")
    assert "AAAA" not in json.dumps(second.messages)


def test_what_our_own_server_refuses_is_passed_on_and_recorded(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers.append(body(chat_body("{}")))
    answer = recorder.chat(
        user("q"),
        response_format={"type": "json_object"},
        tool_choice={"type": "function", "function": {"name": "ls"}},
        top_logprobs=30,
        temperature=9,
    )
    assert recorder.turn(answer).reply["content"] == "{}"


@pytest.mark.parametrize(
    ("path", "sent", "reason"),
    [
        ("chat/completions", {"messages": [{"role": "oracle", "content": "q"}]}, "messages.0.role"),
        ("chat/completions", {"messages": [user("q")], "n": 100}, "n: "),
        ("chat/completions", {"messages": [user("q")], "turn_type": "x"}, "turn_type must be"),
        ("responses", {"input": "q", "conversation": "conv_1"}, "conversation"),
        ("responses", {"input": "q", "previous_response_id": "resp_0"}, "not recorded here"),
        ("messages", {"max_tokens": 1, "messages": [assistant("Well,")]}, "the last one"),
    ],
)
def test_what_cannot_be_recorded_passes_and_says_so(
    recorder: RunningRecorder, upstream: OtherServer, path: str, sent: dict[str, Any], reason: str
) -> None:
    sent = {"model": "big", **sent}
    upstream.answers.append(body({"an": "answer"}))
    answer = recorder.http.post(f"/v1/{path}", json=sent)
    assert answer.json() == {"an": "answer"}
    assert json.loads(upstream.last.body) == sent
    assert reason in answer.headers["x-not-recorded"]
    assert recorder.turns() == []
    assert recorder.http.get("/v1/admin/status").json()["not_recorded"] == 1


def test_a_body_that_is_no_json_is_the_upstreams_to_refuse(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers.append(body({"error": {"message": "No."}}, 400))
    answer = recorder.http.post("/v1/chat/completions", content=b"{")
    assert (answer.status_code, upstream.last.body) == (400, b"{")


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0, "message": "text", "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"tool_calls": [7]}, "finish_reason": "stop"}]},
        {"choices": [{"index": "first", "message": {"content": "a"}, "finish_reason": "stop"}]},
        [],
        "words",
        {},
    ],
)
def test_an_answer_of_any_form_passes_and_is_recorded_as_what_it_is(
    recorder: RunningRecorder, upstream: OtherServer, odd: Any
) -> None:
    upstream.answers.append(body(odd))
    answer = recorder.chat(user("q"))
    assert (answer.status_code, answer.json()) == (200, odd)
    (turn,) = recorder.turns()
    assert turn.state is TurnState.ABORTED


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "choice",
    [
        b'{"index":1e999,"message":{"content":"a"},"finish_reason":"stop"}',
        b'{"index":NaN,"message":{"content":"a"},"finish_reason":"stop"}',
        b'{"index":[1],"message":{"content":"a"},"finish_reason":"stop"}',
    ],
)
def test_whatever_an_answer_holds_it_passes_and_is_counted(
    recorder: RunningRecorder, upstream: OtherServer, choice: bytes, streamed: bool
) -> None:
    said = b'{"id":"x","choices":[%b]}' % choice
    events = b"data: %b\n\ndata: [DONE]\n\n" % said
    upstream.answers.append(Answer([events], headers=list(EVENTS)) if streamed else Answer([said]))
    answer = recorder.chat(user("q"), stream=streamed)
    assert (answer.status_code, answer.content) == (200, events if streamed else said)
    (turn,) = recorder.turns()
    assert (turn.state, turn.state_reason) == (TurnState.ABORTED, UNREADABLE)
    assert recorder.http.get("/v1/admin/status").json()["not_recorded"] == 1


@pytest.mark.parametrize("odd", ["1e999", "NaN", '"\\ud800"'])
def test_usage_that_json_has_no_form_for_is_left_out(
    recorder: RunningRecorder, upstream: OtherServer, odd: str
) -> None:
    said = json.dumps({**chat_body("ok"), "usage": {"cost": "ODD"}}).replace('"ODD"', odd).encode()
    upstream.answers.append(Answer([said]))
    answer = recorder.chat(user("q"))
    assert answer.content == said
    turn = recorder.turn(answer)
    assert (turn.reply["content"], turn.state) == ("ok", TurnState.WAITING_NEXT_STATE)
    assert recorder.store.recordings.usage(turn.id) is None


@pytest.mark.parametrize("where", ["content", "arguments", "name", "id"])
def test_half_a_character_in_a_reply_loses_no_answer(
    recorder: RunningRecorder, upstream: OtherServer, where: str
) -> None:
    message: dict[str, Any] = {"content": "\ud800"}
    if where != "content":
        function = {"name": "ls", "arguments": "{}", where: "\ud800"}
        message = {
            "content": None,
            "tool_calls": [{"id": function.pop("id", "call_1"), "function": function}],
        }
    whole = chat_body("", **message)
    upstream.answers.append(body(whole))
    answer = recorder.chat(user("q"))
    assert (answer.status_code, answer.json()) == (200, whole)
    assert len(recorder.turns()) == 1


def test_what_fails_while_a_turn_is_made_loses_no_answer(
    recorder: RunningRecorder, upstream: OtherServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any, reply: Any) -> str:
        if reply.get("content"):
            raise ArithmeticError
        return "hash"

    monkeypatch.setattr("openclaw_rl.gateway.normalise.Conversation.reply_hash", fails)
    upstream.answers.append(body(chat_body("ok")))
    assert recorder.chat(user("q")).json() == chat_body("ok")
    assert recorder.aborted().state_reason == UNREADABLE
    assert recorder.http.get("/v1/admin/status").json()["not_recorded"] == 1


@pytest.mark.parametrize("media_type", ["Text/Event-Stream", "TEXT/EVENT-STREAM; charset=utf-8", None])
@pytest.mark.parametrize("begins", [b"", b"\xef\xbb\xbf", b": hello\n\n", b"\n"])
def test_a_stream_is_known_for_one(
    recorder: RunningRecorder, upstream: OtherServer, media_type: str | None, begins: bytes
) -> None:
    said = stream(chunk(content="a"), chunk(content="b"), chunk("stop"))
    said.chunks[:1] = [begins, said.chunks[0][:3], said.chunks[0][3:]]
    said.headers = [("content-type", media_type)] if media_type else []
    upstream.answers.append(said)
    answer = recorder.chat(user("q"), stream=True)
    assert answer.content == b"".join(said.chunks)
    assert recorder.turn(answer).reply["content"] == "ab"


@pytest.mark.parametrize("whole", [b"{}", b"", json.dumps(chat_body("ok")).encode()])
def test_a_body_without_a_type_is_a_body(
    recorder: RunningRecorder, upstream: OtherServer, whole: bytes
) -> None:
    upstream.answers.append(Answer([whole[:5], whole[5:]], headers=[]))
    answer = recorder.chat(user("q"))
    assert answer.content == whole
    assert recorder.turn(answer).reply["content"] == ("ok" if len(whole) > 2 else "")


def test_choices_that_nobody_asked_for_are_no_part_of_the_turn(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers.append(
        stream(
            chunk(content="other", index=7), chunk("stop", index=7), chunk("stop", index=-1),
            chunk(content="mine"), chunk("stop"),
        )
    )  # fmt: skip
    recorder.chat(user("q"), stream=True)
    (turn,) = recorder.turns()
    assert (turn.reply["content"], turn.state) == ("mine", TurnState.WAITING_NEXT_STATE)


def test_an_answer_beyond_the_limit_passes_and_is_not_recorded(tmp_path: Path, upstream: OtherServer) -> None:
    with running_recorder(tmp_path, upstream.url, max_body_mb=0.01) as recorder:
        whole = json.dumps(chat_body("long " * 9000)).encode()
        upstream.answers.append(Answer([whole[:9], whole[9:30000], whole[30000:]]))
        answer = recorder.chat(user("q"))
        assert answer.content == whole
        assert "server.max_body_mb" in answer.headers["x-not-recorded"]
        assert recorder.turns() == []
        endless = Answer([b"data: " + b"x" * 9000, b"x" * 9000, b"x\n\n"], headers=list(EVENTS), pause=0.05)
        upstream.answers.append(endless)
        streamed = recorder.chat(user("q"), stream=True)
        assert streamed.content == b"".join(endless.chunks)
        assert "server.max_body_mb" in recorder.turn(streamed).state_reason, "its name was told before"
        assert recorder.http.get("/v1/admin/status").json()["not_recorded"] == 2


def test_a_large_answer_is_read_beside_the_streams_of_others(
    recorder: RunningRecorder, upstream: OtherServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, threads = json.loads, {}

    def noted(text: Any, **how: Any) -> Any:
        if isinstance(text, str) and "chatcmpl-" in text:
            threads[len(text) > LARGE_BODY] = threading.get_ident()
        return loads(text, **how)

    upstream.answers += [body(chat_body("short")), body(chat_body("long " * LARGE_BODY))]
    monkeypatch.setattr(json, "loads", noted)
    short, long = recorder.chat(user("q")), recorder.chat(user("q"))
    monkeypatch.undo()
    assert len(recorder.turn(long).reply["content"]) > LARGE_BODY
    assert recorder.turn(short).reply["content"] == "short"
    assert threads[True] != threads[False]


def test_feedback_names_a_reply_by_the_upstreams_id(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers.append(body(chat_body("ok", id="chatcmpl-up")))
    recorder.chat(user("q"))
    given = recorder.http.post("/v1/feedback", json={"response_id": "chatcmpl-up", "score": 1})
    assert given.status_code == 200, given.text
    (turn,) = recorder.turns()
    assert (given.json()["turn_id"], turn.state) == (turn.id, TurnState.WAITING_JUDGE)


def test_no_recorded_turn_ever_waits_for_an_update(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers += [body(chat_body("one")), body(chat_body("two"))]
    first = recorder.turn(recorder.chat(user("q")))
    standing = recorder.http.get("/v1/admin/turns").json()["data"][0]
    assert standing["reason"] == f"{MADE_BY}; waits for the next message of its conversation"
    assert standing["trainable"] is False
    recorder.chat(user("q"), assistant("one"), user("wrong"))
    (state,) = recorder.store.conversations.next_states(first.id)
    votes = (Vote("evaluative", -1),)
    judgement = Judgement("judge_1", first.id, state.id, "rules", -1, "Be right, please.", votes, 1.0)
    assert recorder.store.learning.add_judgement(judgement) is TurnState.RECORDED
    told = recorder.http.get("/v1/admin/turns", params={"state": "recorded"}).json()
    assert [turn["reason"] for turn in told["data"]] == [MADE_BY]
    assert told["next_update"] is None
    assert told["counts"]["recorded"] == 1
    assert recorder.store.learning.waiting_samples(10) == []
    assert recorder.store.progress.next_update(1).collected == 0
    # Later words are judged too.
    given = recorder.http.post("/v1/feedback", json={"response_id": first.id, "score": 1})
    assert given.json()["state"] == "waiting_judge"


def test_status_says_what_passes_and_that_nothing_trains(
    recorder: RunningRecorder, upstream: OtherServer, tmp_path: Path
) -> None:
    upstream.answers.append(body(chat_body("one")))
    recorder.chat(user("q"))
    status = recorder.http.get("/v1/admin/status").json()
    assert (status["record_only"], status["upstream"]) == (True, f"{upstream.url}/v1")
    assert (status["next_update"], status["passed_requests"]) == (None, 1)
    ready = recorder.http.get("/readyz").json()
    assert ready == {"status": "ready", "record_only": True, "upstream": f"{upstream.url}/v1"}
    assert recorder.http.get("/healthz").json() == {"status": "ok"}
    described = recorder.http.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/models", "/v1/admin/turns"} <= described["paths"].keys()


def test_a_stream_without_done_or_reason_is_recorded_for_what_it_is(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers += [
        stream(chunk(content="whole"), chunk("stop"), done=False),
        stream(chunk(content="no reason given")),
        stream(chunk(content="cut"), done=False),
        Answer([b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}'],
               headers=[("content-type", "text/event-stream")]),
    ]  # fmt: skip
    for _ in range(4):
        recorder.chat(user("q"), stream=True)
    states = {turn.reply["content"]: turn.state for turn in recorder.turns()}
    assert states == {
        "whole": TurnState.WAITING_NEXT_STATE,
        "no reason given": TurnState.WAITING_NEXT_STATE,
        "cut": TurnState.ABORTED,
        "x": TurnState.WAITING_NEXT_STATE,
    }
