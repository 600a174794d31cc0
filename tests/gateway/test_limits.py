"""Limits, told honestly: the context window, the budget of a reply, and an engine that is full."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import TurnState

# The context


def test_a_text_of_megabytes_is_refused_without_being_encoded_whole(gateway: RunningGateway) -> None:
    started = time.process_time()
    response = gateway.post([user("Grüße " * 1_500_000)])
    assert response.status_code == 400
    assert "resulted in at least" in response.json()["error"]["message"]
    assert time.process_time() - started < 5


def test_a_long_text_that_fits_is_encoded_as_if_it_were_short(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = gateway.chat(user("Grüße " * 400))
    monkeypatch.setattr("openclaw_rl.policy.chat_template.PIECE", 101)
    assert gateway.chat(user("Grüße " * 400)).prompt_ids == short.prompt_ids


def test_what_a_refused_request_says_of_the_turn_before_is_kept(gateway: RunningGateway) -> None:
    first = gateway.chat(user("q"))
    assert gateway.post([user("q"), assistant("fine"), user("no " * 3000)]).status_code == 400
    (_, (said,)) = gateway.next_states(first)[0]
    assert said.startswith("no no")


def test_a_prompt_that_leaves_one_token_gets_one(gateway: RunningGateway) -> None:
    frame = len(gateway.chat(user("")).prompt_ids)
    turn = gateway.chat(user("x" * (4095 - frame)))
    assert (len(turn.prompt_ids), len(turn.response_ids), turn.finish_reason) == (4095, 1, "length")
    assert gateway.post([user("x" * (4096 - frame))]).status_code == 400


# A full engine


def test_a_request_that_finds_the_engine_full_is_held_open_until_there_is_room(
    gateway: RunningGateway,
) -> None:
    gateway.engine.busy = True
    free = threading.Timer(0.4, lambda: setattr(gateway.engine, "busy", False))
    free.start()
    started = time.monotonic()
    assert gateway.post([user("q")]).status_code == 200
    assert time.monotonic() - started > 0.35


@pytest.mark.parametrize("kind", ["main", "side"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_after_a_bounded_wait_it_gets_429_with_retry_after_whatever_it_is(
    tmp_path: Path, path: str, kind: str
) -> None:
    body = {"model": MODEL, "messages": [user("q")], "max_tokens": 9, "input": "q", "stream": True}
    with running_gateway(tmp_path, busy_seconds=0.3) as gateway:
        gateway.engine.busy = True
        started = time.monotonic()
        response = gateway.http.post(path, json=body, headers={"X-Turn-Type": kind})
        assert response.status_code == 429
        assert 0.25 < time.monotonic() - started < 10
        assert int(response.headers["retry-after"]) > 0
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert gateway.store.conversations.turns() == []


def held_requests(gateway: RunningGateway) -> int:
    count: int = gateway.http.get("/v1/admin/status").json()["held_requests"]
    return count


def test_held_requests_enter_in_the_order_in_which_they_came(gateway: RunningGateway) -> None:
    gateway.engine.busy = True
    with ThreadPoolExecutor(5) as pool:
        answers = []
        for number in range(5):
            answers.append(pool.submit(gateway.post, [user(f"q{number}")]))
            eventually(lambda: held_requests(gateway) == len(answers))
        gateway.engine.busy = False
        assert [answer.result().status_code for answer in answers] == [200] * 5
    prompts = [gateway.engine.template.decode(ids) for ids, _, _ in gateway.engine.asked]
    assert [prompt.split("q")[1][0] for prompt in prompts] == list("01234")


def test_the_number_of_held_requests_is_bounded_too(tmp_path: Path) -> None:
    with running_gateway(tmp_path, engine_settings={"max_waiting": 2}) as gateway:
        gateway.engine.busy = True
        with ThreadPoolExecutor(2) as pool:
            held = [pool.submit(gateway.post, [user(f"q{n}")]) for n in range(2)]
            eventually(lambda: gateway.store.reports()["server"].detail.get("held_requests") == 2)
            refused = gateway.post([user("one too many")])
            assert refused.status_code == 429
            assert "2 requests wait for it already" in refused.json()["error"]["message"]
            gateway.engine.busy = False
            assert [answer.result().status_code for answer in held] == [200, 200]


def test_a_client_that_leaves_while_it_is_held_leaves_nothing_behind(gateway: RunningGateway) -> None:
    gateway.engine.busy = True
    with pytest.raises(httpx2.TimeoutException):
        gateway.http.post("/v1/chat/completions", json={"model": MODEL, "messages": [user("q")]}, timeout=0.3)
    eventually(lambda: held_requests(gateway) == 0)
    gateway.engine.busy = False
    assert gateway.chat(user("next")).state is TurnState.WAITING_NEXT_STATE
    assert len(gateway.store.conversations.turns()) == 1
    assert len(gateway.engine.asked) == 1


def test_a_retry_after_429_is_the_same_turn_to_the_one_before(tmp_path: Path) -> None:
    with running_gateway(tmp_path, busy_seconds=0) as gateway:
        first = gateway.chat(user("q"))
        history: list[dict[str, Any]] = [user("q"), assistant("fine"), user("no")]
        gateway.engine.busy = True
        assert gateway.post(history).status_code == 429
        gateway.engine.busy = False
        assert gateway.chat(*history).parent_id == first.id
        assert gateway.next_states(first) == [("conversation", ["no"])]


def test_choices_enter_together_or_not_at_all(gateway: RunningGateway) -> None:
    gateway.engine.room = 1
    gateway.engine.say(Script("x" * 50, delay=0.01))
    free = threading.Timer(0.3, lambda: setattr(gateway.engine, "room", None))
    free.start()
    assert gateway.post([user("q")], n=3).status_code == 200
    assert gateway.engine.cancels > 0
    assert len(gateway.store.conversations.turns()) == 3
