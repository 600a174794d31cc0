"""What goes wrong: turns cut off, a failing engine, wrong and oversized bodies, pages of other sites."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIError
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user

from openclaw_rl.config import Settings
from openclaw_rl.evals.byte_template import byte_template
from openclaw_rl.evals.scripted_engine import Script, ScriptedEngine
from openclaw_rl.gateway.app import create_app
from openclaw_rl.model import TurnState
from openclaw_rl.store import Store


def aborted(gateway: RunningGateway) -> Any:
    return eventually(lambda: gateway.store.conversations.turns(state=TurnState.ABORTED))[0]


# Turns cut off


def test_an_aborted_reply_is_never_continued_or_paired(gateway: RunningGateway) -> None:
    gateway.engine.say("a", Script("half a reply", fails_after=4))
    first = gateway.chat(user("q"))
    gateway.post([user("q"), assistant("a"), user("x")])
    cut = aborted(gateway)
    again = gateway.chat(user("q"), assistant("a"), user("x"), assistant("half"), user("go on"))
    assert again.parent_id == first.id
    assert gateway.next_states(cut) == []
    assert gateway.next_states(first) == [("conversation", ["x"])]


def test_stopping_the_server_records_what_was_running(tmp_path: Path) -> None:
    engine = ScriptedEngine(byte_template())
    store = Store.open(tmp_path / "store.sqlite")
    app = create_app(Settings(data_dir=tmp_path, model={"name": MODEL}), store, engine, engine.template)
    body = json.dumps({"model": MODEL, "messages": [user("q")]}).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [],
    }
    engine.say(Script("x" * 400, delay=0.02))

    async def run_and_stop() -> None:
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            return None

        async def send(_: Any) -> None:
            pass

        async with app.router.lifespan_context(app):
            request = asyncio.create_task(app(scope, receive, send))
            while not engine.sampled:
                await asyncio.sleep(0.01)
        await request

    asyncio.run(run_and_stop())
    (turn,) = store.conversations.turns()
    assert (turn.state, turn.state_reason) == (TurnState.ABORTED, "the server stopped")
    assert store.reports()["server"].phase == "stopped"


# A failing engine


@pytest.mark.parametrize("crashes", [False, True])
def test_an_engine_that_fails_half_way_gives_an_error_and_an_aborted_turn(
    gateway: RunningGateway, crashes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script("secret words", fails_after=6, crashes=crashes)
    gateway.engine.say(script, script)
    response = gateway.post([user("q")])
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "out of memory" not in response.text
    turn = gateway.turn(response.headers["x-turn-id"])
    assert turn.state is TurnState.ABORTED
    assert turn.state_reason == f"the engine failed: {'KeyError' if crashes else 'out of memory'}"
    assert turn.reply["content"] == "secret"
    with gateway.stream([user("q")]) as (_, chunks):
        received = list(chunks)
    assert received[-1]["error"]["type"] == "server_error"
    assert received[-2]["choices"][0]["delta"] == {"content": "t"}
    assert "secret words" not in caplog.text
    assert "Traceback" not in caplog.text


def test_the_openai_sdk_raises_when_a_stream_fails(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("half", fails_after=2))
    with pytest.raises(APIError, match="reply is incomplete"):
        list(gateway.openai.chat.completions.create(model=MODEL, messages=[user("q")], stream=True))


def test_an_engine_that_ends_without_a_reason_is_a_failure(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("", finish="length"))
    response = gateway.post([user("q")])
    assert response.status_code == 500
    assert "without saying why" in gateway.turn(response.headers["x-turn-id"]).state_reason


def test_a_turn_that_cannot_be_recorded_is_not_delivered_as_finished(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full_disk(_: Any) -> None:
        raise OSError("disk full; parameters: secret words")

    monkeypatch.setattr(gateway.store.conversations, "add_turn", full_disk)
    with gateway.stream([user("q")]) as (_, chunks):
        received = list(chunks)
    assert "error" in received[-1]
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in received[:-1])
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_an_unforeseen_error_is_a_500_that_tells_nothing(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(gateway.store.conversations, "open_session", broken)
    response = gateway.post([user("q")])
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


# Malformed and oversized bodies


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages.0"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [user("a"), {"role": "user", "content": 5}]}, "messages.1.content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages.0.content.0"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}]}]},
            "messages.0.tool_calls.0.function",
        ),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"seed": 2**70}, "seed"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop": ["a", 5]}, "stop.1"),
        ({"stream": "yes"}, "stream"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"metadata": "x"}, "metadata"),
        ({"user": 5}, "user"),
    ],
)
def test_a_wrong_field_is_named(gateway: RunningGateway, fields: dict[str, Any], named: str) -> None:
    body = {"model": MODEL, "messages": [user("hi")], **fields}
    response = gateway.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == named
    assert response.json()["error"]["message"].startswith(f"{named}: ")


def test_unknown_routes_and_methods_answer_in_the_same_form(gateway: RunningGateway) -> None:
    missing = gateway.http.post("/v1/embeddings", json={})
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"
    wrong = gateway.http.get("/v1/chat/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert gateway.http.get("/docs").status_code == 404


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 1000):
        yield b" " * 1000


@pytest.mark.parametrize("size", [20_000, 60_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_a_413(tmp_path: Path, size: int, chunked: bool) -> None:
    with running_gateway(tmp_path, max_body_mb=0.01) as gateway:
        content: Any = pieces(size) if chunked else b" " * size
        response = gateway.http.post("/v1/chat/completions", content=content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert gateway.post([user("small")]).status_code == 200


def test_a_client_that_leaves_while_it_sends_disturbs_nobody(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with caplog.at_level(logging.ERROR):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
            )
            time.sleep(0.1)
        time.sleep(0.1)
    assert gateway.post([user("hi")]).status_code == 200
    assert caplog.text == ""


# Without a key


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://example.com"}, {"Host": "example.com:8780"}, {"Origin": "null"}]
)
def test_without_a_key_pages_of_other_sites_are_refused(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    response = gateway.http.get("/v1/models", headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "foreign_site"


def test_without_a_key_pages_of_this_machine_are_answered(gateway: RunningGateway) -> None:
    headers = {"Origin": "http://localhost:3000", "Host": "127.0.0.1:8780"}
    assert gateway.http.get("/v1/models", headers=headers).status_code == 200


def test_a_server_whose_store_is_gone_is_not_ready(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise OSError("no such file")

    assert gateway.http.get("/readyz").json()["status"] == "ready"
    monkeypatch.setattr(gateway.store, "ping", gone)
    response = gateway.http.get("/readyz")
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "The store cannot be reached."


def test_many_streams_run_side_by_side(gateway: RunningGateway) -> None:
    gateway.engine.say(*[Script("0123456789", delay=0.1)] * 12)
    started = time.monotonic()
    threads = [
        threading.Thread(target=gateway.post, args=([user(f"q{n}")],), kwargs={"stream": True})
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 8  # one after the other they take 13
    assert len(gateway.store.conversations.turns()) == 12
