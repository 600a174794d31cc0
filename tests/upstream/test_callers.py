"""Callers are told apart by their credentials, which are found nowhere afterwards."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from answers import assistant, chat_body, chunk, user
from other_server import Answer, OtherServer, body, stream
from running_recorder import KEY, RunningRecorder, running_recorder
from starlette.datastructures import Headers as StarletteHeaders

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.folder_key import FILE, FolderKey
from openclaw_rl.gateway.app import create_recording_app
from openclaw_rl.gateway.upstream.callers import Callers
from openclaw_rl.gateway.upstream.connection import base_url
from openclaw_rl.store import Store


def ask(recorder: RunningRecorder, *messages: Any, **headers: str) -> httpx2.Response:
    request = {"model": "big", "messages": list(messages)}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx2.Client(base_url=recorder.url) as client:
        return client.post("/v1/chat/completions", json=request, headers=named)


@pytest.mark.parametrize("header", ["Authorization", "x_api_key", "api_key"])
def test_the_same_words_of_two_callers_never_join(
    recorder: RunningRecorder, upstream: OtherServer, header: str
) -> None:
    upstream.answers += [body(chat_body("hello"))] * 3
    conversation = (user("hi"), assistant("hello"), user("wrong"))
    first = recorder.turn(ask(recorder, user("hi"), **{header: "Bearer one"}))
    other = recorder.turn(ask(recorder, *conversation, **{header: "Bearer two"}))
    assert (other.parent_id, other.session_id == first.session_id) == (None, False)
    same = recorder.turn(ask(recorder, *conversation, **{header: "Bearer one"}))
    assert (same.parent_id, same.session_id) == (first.id, first.session_id)
    listed = httpx2.get(f"{recorder.url}/v1/admin/turns", headers={header.replace("_", "-"): "Bearer two"})
    assert [turn["turn_id"] for turn in listed.json()["data"]] == [other.id]
    assert httpx2.get(f"{recorder.url}/v1/admin/turns").json()["data"] == []


@pytest.mark.parametrize(
    "name",
    [
        "x-litellm-api-key", "ocp-apim-subscription-key", "x-goog-api-key", "cf-aig-authorization",
        "X-Auth-Token", "helicone-auth", "x-vendor-apikey",
    ],
)  # fmt: skip
def test_a_header_of_any_providers_name_tells_callers_apart(recorder: RunningRecorder, name: str) -> None:
    assert len({tenant(recorder, {name: value}) for value in ("one", "two")} | {tenant(recorder)}) == 3
    twice = [(name, "one"), (name, "two")]
    assert tenant(recorder, twice) not in {tenant(recorder, {name: "one"}), tenant(recorder, twice[::-1][:1])}


@pytest.mark.parametrize("name", ["key", "api_key", "api-key", "subscription-key", "access_token", "%6Bey"])
def test_a_key_in_the_query_tells_callers_apart(
    recorder: RunningRecorder, upstream: OtherServer, name: str
) -> None:
    upstream.answers += [body(chat_body("hello"))] * 3
    conversation = [user("hi"), assistant("hello"), user("wrong")]

    def ask_with(query: str, *messages: Any) -> Any:
        sent = {"model": "big", "messages": list(messages)}
        return recorder.turn(recorder.http.post(f"/v1/chat/completions?{query}", json=sent))

    first = ask_with(f"v=1&{name}=AAA", user("hi"))
    other = ask_with(f"v=1&{name}=BBB", *conversation)
    assert (other.parent_id, other.session_id == first.session_id) == (None, False)
    assert ask_with(f"{name}=AAA&v=2", *conversation).parent_id == first.id
    listed = recorder.http.get(f"/v1/admin/turns?{name}=BBB&limit=5").json()["data"]
    assert [turn["turn_id"] for turn in listed] == [other.id]


def test_what_differs_with_every_request_is_no_credential(recorder: RunningRecorder) -> None:
    odd = {"Idempotency-Key": "1", "X-Request-Id": "2", "X-Max-Tokens": "3"}
    assert tenant(recorder, odd) == tenant(recorder)
    assert tenant(recorder, query="limit=3&monkey=1") == tenant(recorder)


def tenant(recorder: RunningRecorder, headers: Any = None, query: str = "") -> str:
    """The name under which the recorder knows who sends these headers."""
    shown = httpx2.Headers(headers).raw
    settings = Settings(data_dir=recorder.folder, upstream={"url": recorder.url})
    given = StarletteHeaders(raw=[(name.lower(), value) for name, value in shown])
    return Callers(settings).tenant_of(given, query)


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path, upstream: OtherServer) -> None:
    upstream.answers += [body(chat_body("hello"))] * 2
    with running_recorder(tmp_path, upstream.url) as recorder:
        first = recorder.turn(recorder.chat(user("hi")))
    with running_recorder(tmp_path, upstream.url) as recorder:
        second = recorder.turn(recorder.chat(user("hi"), assistant("hello"), user("wrong")))
    assert second.parent_id == first.id


def test_the_folders_key_is_its_owners_alone_and_made_once(tmp_path: Path) -> None:
    named = FolderKey(tmp_path).opaque("caller", "one")
    assert FolderKey(tmp_path).opaque("caller", "one") == named != FolderKey(tmp_path).opaque("caller", "two")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert FolderKey(tmp_path / "other").opaque("caller", "one") != named
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="is damaged"):
        FolderKey(tmp_path)


def test_a_secret_is_found_in_no_file_no_log_and_no_answer(
    tmp_path: Path, upstream: OtherServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="openclaw_rl")
    secrets = {
        "Authorization": f"Bearer {KEY}",
        "x-api-key": "sk-other-secret",
        "OpenAI-Organization": "org-x",
    }
    texts: list[str] = []
    with running_recorder(tmp_path, upstream.url) as recorder:
        recorder.http.headers.update(secrets)
        upstream.answers += [
            body(chat_body("hello")),
            stream(chunk(content="a"), chunk("stop")),
            stream(chunk(content="a"), breaks=True, done=False),
            Answer([b"x"], headers=[("content-length", "9")], breaks=True),
            body({"error": {"message": "no"}}, 401),
        ]
        answers = [recorder.chat(user("q"), stream=number in (1, 2)) for number in range(5)]
        answers.append(recorder.http.post("/v1/completions", json={}))
        answers += [recorder.http.get(f"/v1/admin/{what}") for what in ("turns", "status")]
        for answer in answers:
            texts.append(answer.text)
            texts += [f"{name}: {value}" for name, value in answer.headers.items()]
        texts.append(repr([Settings(upstream={"url": upstream.url}), *recorder.turns()]))
        texts += [str(report) for report in recorder.store.reports().values()]
    assert upstream.last.headers["x-api-key"] == "sk-other-secret", "it did pass"
    with running_recorder(tmp_path, "http://127.0.0.1:9") as unreachable:
        unreachable.http.headers.update(secrets)
        texts.append(unreachable.chat(user("q")).text)
    texts.append(caplog.text)
    stored = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert "store.sqlite" in stored
    for secret in (KEY, "sk-other-secret", "org-x"):
        assert [text for text in texts if secret in text] == []
        assert [name for name, content in stored.items() if secret.encode() in content] == []


def test_a_key_of_ours_has_a_header_of_its_own(tmp_path: Path, upstream: OtherServer) -> None:
    with running_recorder(tmp_path, upstream.url, api_keys=("ours", "theirs")) as recorder:
        refused = recorder.chat(user("q"))
        assert refused.status_code == 401
        assert "X-OpenClaw-RL-Key: KEY" in refused.json()["error"]["message"]
        assert ask(recorder, user("q"), Authorization="Bearer ours").status_code == 401
        assert recorder.http.get("/v1/admin/status").status_code == 401
        assert upstream.received == []
        upstream.answers += [body(chat_body("hello"))] * 2
        conversation = (user("hi"), assistant("hello"), user("wrong"))
        first = ask(recorder, user("hi"), Authorization="Bearer up", X_OpenClaw_RL_Key="ours")
        assert "x-openclaw-rl-key" not in upstream.last.headers
        assert upstream.last.headers["authorization"] == "Bearer up"
        other = ask(recorder, *conversation, Authorization="Bearer up", X_OpenClaw_RL_Key="theirs")
        assert recorder.turn(other).session_id != recorder.turn(first).session_id


def test_a_page_of_another_site_is_refused(recorder: RunningRecorder, upstream: OtherServer) -> None:
    assert ask(recorder, user("q"), Origin="https://evil.example").status_code == 403
    assert ask(recorder, user("q"), Host="evil.example").status_code == 403
    assert upstream.received == []


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://me:secret@api.example.com", "each caller sends its own"),
        ("me:secret@api.example.com", "each caller sends its own"),
        ("https://api.example.com/v1?key=secret", "each caller sends its own"),
        ("api.example.com", "is no base URL"),
        ("ftp://api.example.com", "is no base URL"),
        ("http://", "is no base URL"),
        ("http://[::1", "is no base URL"),
        ("http://localhost:8780/v1", "is this server itself"),
    ],
)
def test_an_upstream_that_cannot_be_is_refused_without_its_secret(url: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        base_url(Settings(upstream={"url": url}))
    assert word in str(refused.value)
    assert "secret" not in str(refused.value)


def test_another_address_than_loopback_needs_a_key(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, upstream={"url": "http://127.0.0.1:9"}, server={"host": "0.0.0.0"})
    store = Store.open(tmp_path / "store.sqlite")
    with pytest.raises(ConfigError, match=r"server\.api_keys"):
        create_recording_app(settings, store)
    store.close()
