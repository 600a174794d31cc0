"""The model judge against a real HTTP server with scripted replies."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from judging_nouns import make_next_state, make_turn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from openclaw_rl.config import JudgeSettings
from openclaw_rl.judge import model_judge
from openclaw_rl.judge.model_judge import ModelJudge
from openclaw_rl.judge.verdict import hint_of, no_answer_reason, score_of

GOOD = "progress \\boxed{1} [HINT_START]Keep the reply under three lines.[HINT_END]"


def completion(text: str | None, finish_reason: str = "stop"):
    message = {"role": "assistant", "content": text}
    return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]})


class ScriptedServer:
    """Answers with the scripted replies in turn, the last one for ever, and notes what it was asked."""

    def __init__(self) -> None:
        self.script = [lambda: completion(GOOD)]
        self.models = {"data": [{"id": "first-model"}, {"id": "second"}]}
        self.delay = 0.0
        self.requests = []
        self.model_requests = 0
        self.in_flight = self.most_in_flight = 0
        self.url = ""

    async def chat(self, request):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.requests.append((await request.json(), dict(request.headers)))
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            await asyncio.sleep(self.delay)
            return reply()
        finally:
            self.in_flight -= 1

    async def list_models(self, request):
        self.model_requests += 1
        return JSONResponse(self.models)


@pytest.fixture
def server():
    with running_server() as scripted:
        yield scripted


@contextmanager
def running_server():
    scripted = ScriptedServer()
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", scripted.chat, methods=["POST"]),
            Route("/v1/models", scripted.list_models),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    scripted.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    deadline = time.monotonic() + 10
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.005)
    try:
        yield scripted
    finally:
        running.should_exit = True
        thread.join(10)
        listener.close()


def ask(server: ScriptedServer, *, model: str = "judge-model", headers=None, times: int = 1, **settings):
    async def asked():
        judge = ModelJudge(server.url, model, "sk-test", JudgeSettings(**settings), headers)
        try:
            for _ in range(times):
                votes = await judge.judge(make_turn(), make_next_state("too long"))
            return votes, judge.name
        finally:
            await judge.close()

    return asyncio.run(asked())


def test_each_question_gets_its_m_votes(server):
    votes, name = ask(server, votes=3, temperature=0.3, max_tokens=99, headers={"X-Turn-Type": "side"})
    assert [vote.question for vote in votes] == ["evaluative"] * 3 + ["directive"] * 3
    assert score_of(votes) == 1
    assert hint_of(votes) == "Keep the reply under three lines."
    assert {vote.raw for vote in votes} == {GOOD}
    assert name == "model:judge-model"
    for body, headers in server.requests:
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge-model", 0.3, 99)
        assert "tools" not in body
        assert headers["authorization"] == "Bearer sk-test"
        assert headers["x-turn-type"] == "side"
    prompts = {body["messages"][1]["content"] for body, _ in server.requests}
    assert len(prompts) == 6, "every vote has a nonce of its own"


def test_no_more_votes_are_in_flight_than_allowed_and_both_questions_share_the_cap(server):
    server.delay = 0.03
    ask(server, votes=5, concurrency=3)
    assert len(server.requests) == 10
    assert server.most_in_flight == 3


def test_a_server_error_is_tried_again(server):
    server.script = [lambda: PlainTextResponse("down", 500), lambda: completion(GOOD)]
    votes, _ = ask(server, votes=1, concurrency=1)
    assert [vote.score for vote in votes] == [1, 1]
    assert len(server.requests) == 3


def test_retry_after_is_honoured_up_to_a_bound(server, monkeypatch):
    busy = [lambda: PlainTextResponse("busy", 429, {"Retry-After": "0.2"})]
    server.script = [*busy, lambda: completion(GOOD)]
    started = time.monotonic()
    votes, _ = ask(server, votes=1, concurrency=1)
    assert time.monotonic() - started >= 0.2
    assert score_of(votes) == 1
    monkeypatch.setattr(model_judge, "LONGEST_BACKOFF_SECONDS", 0.01)
    server.script = [
        lambda: PlainTextResponse("busy", 429, {"Retry-After": "3600"}),
        lambda: completion(GOOD),
    ]
    assert score_of(ask(server, votes=1)[0]) == 1


def test_waits_between_tries_grow(server):
    server.script = [lambda: PlainTextResponse("down", 503)]
    started = time.monotonic()
    votes, _ = ask(server, votes=1, retries=2)
    assert time.monotonic() - started >= 3 * model_judge.FIRST_BACKOFF_SECONDS
    assert no_answer_reason(votes) == "HTTP 503"
    assert len(server.requests) == 6


def test_a_judge_that_hangs_times_out(server):
    server.delay = 2.0
    started = time.monotonic()
    votes, _ = ask(server, votes=1, timeout_seconds=0.1, retries=0)
    assert time.monotonic() - started < 1.5
    assert no_answer_reason(votes) == "timed out"


def test_nobody_listening_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = ScriptedServer()
        dead.url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    votes, _ = ask(dead, votes=1, retries=0)
    assert no_answer_reason(votes) == "cannot reach it (ConnectError)"


@pytest.mark.parametrize(
    "reply",
    [
        lambda: completion("no idea"),
        lambda: completion("so \\boxed{1}", "length"),
        lambda: completion(None),
    ],
    ids=["unparsable", "truncated", "empty"],
)
def test_a_vote_that_came_and_cannot_be_read_is_final(server, reply):
    server.script = [reply]
    votes, _ = ask(server, votes=2)
    assert score_of(votes) is None
    assert no_answer_reason(votes) is None
    assert len(server.requests) == 4, "not asked again"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda: PlainTextResponse("who?", 401), "HTTP 401"),
        (lambda: PlainTextResponse("<html>"), "the reply is no JSON"),
        (lambda: JSONResponse({"hello": 1}), "the reply is no chat completion"),
        (lambda: JSONResponse({"choices": [{"message": "text"}]}), "the reply is no chat completion"),
    ],
)
def test_a_refusal_is_no_answer_and_not_tried_again(server, reply, reason):
    server.script = [reply]
    votes, _ = ask(server, votes=1)
    assert no_answer_reason(votes) == reason
    assert len(server.requests) == 2


def test_some_votes_may_fail_while_others_count(server):
    server.script = [lambda: PlainTextResponse("", 400), lambda: completion("\\boxed{-1}")]
    votes, _ = ask(server, votes=3, concurrency=1)
    assert score_of(votes) == -1
    assert sum(vote.error is not None for vote in votes) == 1


def test_without_a_model_name_the_server_s_first_is_asked_for_once(server):
    _, name = ask(server, model="", votes=2, times=2)
    assert {body["model"] for body, _ in server.requests} == {"first-model"}
    assert server.model_requests == 1
    assert name == "model:first-model"


def test_a_server_without_models_is_no_answer(server):
    server.models = {"data": []}
    votes, _ = ask(server, model="", votes=1)
    assert no_answer_reason(votes) == "the server lists no model; set judge.model"


def test_a_proxy_from_the_environment_does_not_get_what_is_said_on_this_machine(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    votes, _ = ask(server, votes=1, retries=0)
    assert score_of(votes) == 1
