"""What passes: bytes, headers, statuses and time, in both directions."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from pathlib import Path

import httpx2
import openai
import pytest
from answers import USAGE, chat_body, chunk, last_usage, user
from other_server import EVENTS, JSON, Answer, OtherServer, body, stream
from running_recorder import KEY, RunningRecorder, running_recorder

from openclaw_rl.model import TurnState

ASKED = {"model": "big", "messages": [user("q")], "input": "q"}


def test_a_body_passes_byte_for_byte_with_unknown_fields_and_odd_spacing(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    sent = b'{ "model":"big","messages":[{"role":"user","content":"caf\\u00e9"}],\n "vendor": {"a":[1.50]}}'
    choice = b'{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}'
    answered = b'{"id":"x",  "choices":[%b] , "more":1}\n' % choice
    upstream.answers.append(Answer([answered], headers=[*JSON, ("x-request-id", "req_1")]))
    answer = recorder.http.post("/v1/chat/completions?api-version=3", content=sent, headers=dict(JSON))
    assert (upstream.last.method, upstream.last.path) == ("POST", "/v1/chat/completions")
    assert upstream.last.query == "api-version=3"
    assert upstream.last.body == sent
    assert answer.content == answered
    assert answer.headers["x-request-id"] == "req_1"
    assert recorder.turn(answer).reply["content"] == "ok"


def test_the_callers_headers_pass_but_those_of_the_connection_and_our_own(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers.append(body(chat_body("ok")))
    passed = {
        "Authorization": f"Bearer {KEY}",
        "x-api-key": "key-2",
        "OpenAI-Organization": "org-1",
        "OpenAI-Project": "proj-1",
        "anthropic-version": "2023-06-01",
        "Accept": "text/event-stream",
        "User-Agent": "agent/1",
        "x-session-affinity": "s1",
        "X-Name": "caf\u00e9",
    }
    kept_back = {
        "X-Session-Id": "s2",
        "X-Turn-Type": "side",
        "X-Session-Done": "0",
        "X-OpenClaw-RL-Key": "ours",
        "Cookie": "a=b",
        "Keep-Alive": "timeout=5",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "Accept-Encoding": "gzip",
    }
    headers = {name: value.encode("latin-1") for name, value in {**passed, **kept_back}.items()}
    request = {"model": "big", "messages": [user("q")]}
    assert recorder.http.post("/v1/chat/completions", json=request, headers=headers).status_code == 200
    received = upstream.last.headers
    for name, value in passed.items():
        assert received[name.lower()] == value
    assert received["accept-encoding"] == "identity"
    assert received["host"] == upstream.url.removeprefix("http://")
    left = {name.lower() for name in kept_back} - {"accept-encoding"}
    assert not left & received.keys()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_base_url_works_with_and_without_v1(tmp_path: Path, upstream: OtherServer, suffix: str) -> None:
    with running_recorder(tmp_path, upstream.url + suffix) as recorder:
        upstream.answers.append(body({"data": []}))
        assert recorder.http.get("/v1/models").json() == {"data": []}
    assert upstream.last.path == "/v1/models"


@pytest.mark.parametrize("base", ["/api/v1", "/compatible-mode/v3", "/v1beta/openai"])
def test_a_base_url_with_another_version_is_left_as_it_is(
    tmp_path: Path, upstream: OtherServer, base: str
) -> None:
    with running_recorder(tmp_path, upstream.url + base) as recorder:
        upstream.answers.append(body(chat_body("ok")))
        assert recorder.chat(user("q")).status_code == 200
    assert upstream.last.path == f"{base}/chat/completions"


def test_models_and_embeddings_pass_and_leave_no_turn(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers += [body({"data": [{"id": "a/b"}]}), body({"id": "a/b"}), body({"data": [1]})]
    assert recorder.http.get("/v1/models").json() == {"data": [{"id": "a/b"}]}
    assert recorder.http.get("/v1/models/a%2Fb").json() == {"id": "a/b"}
    assert upstream.last.path == "/v1/models/a%2Fb"
    assert recorder.http.post("/v1/embeddings", json={"input": "x"}).json() == {"data": [1]}
    assert json.loads(upstream.last.body) == {"input": "x"}
    assert recorder.turns() == []


def test_a_path_that_cannot_be_recorded_is_refused_and_not_asked_for(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    refused = recorder.http.post("/v1/completions", json={"prompt": "Once"})
    assert refused.status_code == 404
    assert "is not passed on" in refused.json()["error"]["message"]
    background = {"model": "big", "input": "q", "background": True}
    refused = recorder.http.post("/v1/responses", json=background)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "background"
    assert upstream.received == []


@pytest.mark.parametrize(
    "path",
    [
        "models/../../secret", "models/%2e%2E/secret", "models/..%2f..%2fsecret", "models/.", "models/a/./b",
        "models/%252e%252e/secret", "models/..%5csecret", "models/a%5Cb", "models/..;a/secret",
    ],
)  # fmt: skip
def test_a_path_that_climbs_out_of_the_base_url_is_refused(
    recorder: RunningRecorder, upstream: OtherServer, path: str
) -> None:
    address = recorder.url.removeprefix("http://")
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:  # a client would tidy the path
        head = f"GET /v1/{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        raw.sendall(head.encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"is not passed on" in answer
    assert upstream.received == []


@pytest.mark.parametrize("model", ["a..b", "...", "org%2Fmodel-1.5", "a;v=1"])
def test_a_model_may_have_dots_in_its_name(
    recorder: RunningRecorder, upstream: OtherServer, model: str
) -> None:
    upstream.answers.append(body({"id": model}))
    assert recorder.http.get(f"/v1/models/{model}").status_code == 200
    assert upstream.last.path == f"/v1/models/{model}"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_refusal_passes_unchanged_and_leaves_no_turn(
    recorder: RunningRecorder, upstream: OtherServer, streamed: bool
) -> None:
    refusal = {"error": {"message": "Slow down.", "type": "tokens", "param": None, "code": "rate_limit"}}
    upstream.answers.append(body(refusal, 429, retry_after="17", x_ratelimit_remaining="0"))
    answer = recorder.chat(user("q"), stream=streamed)
    assert answer.status_code == 429
    assert answer.json() == refusal
    assert answer.headers["retry-after"] == "17"
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert recorder.turns() == []
    upstream.answers.append(body(refusal, 401))
    with pytest.raises(openai.AuthenticationError, match="Slow down"):
        recorder.openai.chat.completions.create(model="big", messages=[user("q")])


def test_an_upstream_that_cannot_be_reached_is_a_502_with_its_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_recorder(tmp_path, f"http://127.0.0.1:{port}") as recorder:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/models"):
            answer = recorder.http.request("GET" if path == "/v1/models" else "POST", path, json={})
            assert answer.status_code == 502
            error = answer.json()["error"]
            assert error["code"] == "upstream_failed"
            assert f"http://127.0.0.1:{port}/v1 cannot be reached" in error["message"]
        anthropic = recorder.http.post("/v1/messages", json={})
        assert anthropic.json()["error"]["type"] == "api_error"
        assert recorder.turns() == []
        assert recorder.http.get("/v1/admin/status").json()["failed_requests"] == 4


def test_an_upstream_that_is_silent_for_too_long_is_a_504(tmp_path: Path, upstream: OtherServer) -> None:
    with running_recorder(tmp_path, upstream.url, upstream_settings={"silence_seconds": 0.2}) as recorder:
        upstream.answers.append(Answer([b"{}"], head_after=5))
        answer = recorder.chat(user("q"))
        assert answer.status_code == 504
        assert "upstream.silence_seconds" in answer.json()["error"]["message"]
        assert recorder.turns() == []


def test_a_stream_passes_at_once_chunk_by_chunk_and_unchanged(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    said = stream(chunk(role="assistant", content="a"), chunk(content="b"), chunk("stop"), last_usage())
    said.chunks.insert(1, b": keep-alive\r\n\r\n")
    said.chunks.insert(1, b"event: ping\ndata: not json\n\n")
    said.gate = threading.Semaphore(0)
    upstream.answers.append(said)
    request = {"model": "big", "messages": [user("q")], "stream": True}
    with recorder.http.stream("POST", "/v1/chat/completions", json=request) as answer:
        assert answer.status_code == 200, "the head came before the first chunk"
        pieces = answer.iter_raw()
        for sent in said.chunks:
            said.gate.release()
            assert next(pieces) == sent, "it came before the next one was sent"
        assert list(pieces) == []
    (turn,) = recorder.turns()
    assert (turn.state, turn.reply["content"]) == (TurnState.WAITING_NEXT_STATE, "ab")


def test_a_compressed_answer_is_passed_on_plain_and_recorded(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    packed = gzip.compress(json.dumps(chat_body("ok")).encode())
    headers = [*JSON, ("content-encoding", "gzip"), ("content-length", str(len(packed)))]
    upstream.answers.append(Answer([packed], headers=headers))
    answer = recorder.chat(user("q"))
    assert answer.json() == chat_body("ok")
    assert "content-encoding" not in answer.headers
    assert recorder.turn(answer).reply["content"] == "ok"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "made-up"])
@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
def test_a_coding_that_cannot_be_read_passes_as_it_came_and_is_not_recorded(
    recorder: RunningRecorder, upstream: OtherServer, coding: str, media_type: str
) -> None:
    packed = b"\x8b\x00\xff not for us"
    headers = [("content-type", media_type), ("content-encoding", coding)]
    upstream.answers.append(Answer([packed], headers=headers))
    request = {"model": "big", "messages": [user("q")]}
    with recorder.http.stream("POST", "/v1/chat/completions", json=request) as answer:
        assert b"".join(answer.iter_raw()) == packed
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, coding)
    assert "Content-Encoding" in answer.headers["x-not-recorded"]
    assert "x-turn-id" not in answer.headers
    assert recorder.turns() == []
    assert recorder.http.get("/v1/admin/status").json()["not_recorded"] == 1


@pytest.mark.parametrize("path", ["models", "embeddings", "chat/completions"])
def test_an_answer_that_breaks_off_before_its_length_ends_at_once(
    recorder: RunningRecorder, upstream: OtherServer, path: str
) -> None:
    headers = [*JSON, ("content-length", "99999")]
    upstream.answers.append(Answer([b" \n", b'{"a'], headers=headers, pause=0.05, breaks=True))
    method = "GET" if path == "models" else "POST"
    answer = recorder.http.request(method, f"/v1/{path}", json=ASKED, timeout=5)
    assert "content-length" not in answer.headers
    assert "broke off" in answer.text


def test_a_length_that_is_not_the_answers_own_is_not_passed_on(recorder: RunningRecorder) -> None:
    whole = json.dumps(chat_body("ok")).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n"
    answer = b"%btransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(whole), whole)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while not connection.recv(65536).endswith(b"}"):
                    pass
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with running_recorder(recorder.folder / "other", f"http://127.0.0.1:{port}") as behind:
            given = behind.chat(user("q"))
        thread.join(10)
    assert given.json() == chat_body("ok")
    assert "content-length" not in given.headers


def test_every_connection_header_names_what_stays(recorder: RunningRecorder, upstream: OtherServer) -> None:
    connection = [("Connection", "X-One"), ("Connection", "keep-alive, X-Two")]
    upstream.answers.append(body({}, x_one="1", x_two="2", x_three="3"))
    upstream.answers[0].headers += connection
    hops = [("X-One", "1"), ("X-Two", "2"), ("X-Three", "3")]
    answer = recorder.http.get("/v1/models", headers=[*connection, *hops])
    for headers in (upstream.last.headers, answer.headers):
        assert {"x-one", "x-two", "x-three"} & {name.lower() for name in headers} == {"x-three"}


def test_white_space_that_keeps_a_plain_answer_alive_passes_at_once(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    whole = json.dumps(chat_body("ok")).encode()
    said = Answer([b"\n", b" \n", whole[:9], whole[9:]], gate=threading.Semaphore(0))
    upstream.answers.append(said)
    request = {"model": "big", "messages": [user("q")]}
    assert said.gate is not None
    said.gate.release()
    with recorder.http.stream("POST", "/v1/chat/completions", json=request) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"\n"
        said.gate.release(3)
        assert json.loads(b"".join(pieces)) == chat_body("ok")
    (turn,) = recorder.turns()
    assert turn.reply["content"] == "ok"
    assert recorder.store.recordings.usage(turn.id) == USAGE


@pytest.mark.parametrize("streamed", [True, False])
def test_a_hang_up_ends_the_upstreams_work_at_once_and_leaves_an_aborted_turn(
    recorder: RunningRecorder, upstream: OtherServer, streamed: bool
) -> None:
    pieces = [chunk(content=f"{i} ") for i in range(1000)]
    if streamed:
        upstream.answers.append(stream(*pieces, pause=0.05))
    else:
        upstream.answers.append(Answer([b"{}"], head_after=60))
    request = {"model": "big", "messages": [user("q")], "stream": streamed}
    with httpx2.Client(base_url=recorder.url, timeout=0.5) as client:
        if streamed:
            with client.stream("POST", "/v1/chat/completions", json=request) as answer:
                next(answer.iter_raw())
        else:
            with pytest.raises(httpx2.ReadTimeout):
                client.post("/v1/chat/completions", json=request)
    assert upstream.hung_up.wait(10), "it would have gone on for fifty seconds"
    turn = recorder.aborted()
    assert turn.state_reason == "client hung up"
    assert turn.reply["content"].startswith("0 ") is streamed


def test_a_stream_that_breaks_off_ends_in_an_error_that_clients_read(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    upstream.answers.append(stream(chunk(content="begun"), done=False, breaks=True))
    upstream.answers[0].chunks.append(b'data: {"half')
    request = {"model": "big", "messages": [user("q")], "stream": True}
    with recorder.http.stream("POST", "/v1/chat/completions", json=request) as answer:
        text = "".join(answer.iter_text())
    assert text.splitlines()[-2].startswith('data: {"error":{"message":"The upstream http://127.0.0.1')
    turn = recorder.aborted()
    assert "broke off" in turn.state_reason
    assert turn.reply["content"] == "begun"


def test_a_stream_that_reports_an_error_passes_it_and_leaves_an_aborted_turn(
    recorder: RunningRecorder, upstream: OtherServer
) -> None:
    failed = {"error": {"message": "Overloaded.", "type": "server_error", "code": 503}}
    upstream.answers.append(stream(chunk(content="begun"), failed))
    with pytest.raises(openai.APIError, match="Overloaded"):
        list(recorder.openai.chat.completions.create(model="big", messages=[user("q")], stream=True))
    assert recorder.aborted().state_reason == "the upstream reported an error within its answer"


def test_headers_of_events_and_their_type_pass(recorder: RunningRecorder, upstream: OtherServer) -> None:
    upstream.answers.append(
        Answer(
            [b"data: [DONE]\n\n"],
            headers=[("content-type", f"{EVENTS[0][1]}; charset=utf-8"), ("cache-control", "no-store")],
        )
    )
    answer = recorder.chat(user("q"), stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert len(answer.headers.get_list("date")) == 1
