"""What the server tells of its turns: for each one why it did or did not become trainable."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from running_gateway import MODEL, RunningGateway, assistant, running_gateway, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import Judgement, Turn, TurnState, Vote

TOOLS = [{"type": "function", "function": {"name": "read"}}]


def told(gateway: RunningGateway, **query: Any) -> dict[str, Any]:
    response = gateway.http.get("/v1/admin/turns", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def judge(gateway: RunningGateway, turn: Turn, score: Any) -> None:
    (state,) = gateway.store.conversations.next_states(turn.id)
    vote = Vote("evaluative", score)
    gateway.store.learning.add_judgement(
        Judgement(f"judge_{turn.id}", turn.id, state.id, "rules", score, None, (vote,), time.time())
    )


def test_faults_42_43_every_turn_says_why_it_did_or_did_not_become_trainable(
    gateway: RunningGateway,
) -> None:
    gateway.engine.say("a", "b", "c", "d", Script("half", fails_after=2))
    first = gateway.chat(user("q"))
    second = gateway.chat(user("q"), assistant("a"), user("good"))
    third = gateway.chat(user("q"), assistant("a"), user("good"), assistant("b"), user("hm"))
    side = gateway.chat(user("name this"), turn_type="side")
    broken = gateway.post([user("x")]).headers["x-turn-id"]
    judge(gateway, first, 1)
    judge(gateway, second, None)
    by_id = {turn["turn_id"]: turn for turn in told(gateway)["data"]}
    assert {name: (turn["state"], turn["trainable"], turn["reason"]) for name, turn in by_id.items()} == {
        first.id: ("waiting_update", True, "judged; waits for an update"),
        second.id: ("unjudged", False, by_id[second.id]["reason"]),
        third.id: ("waiting_next_state", None, "waits for the next message of its conversation"),
        side.id: ("side", False, "the client said side"),
        broken: ("aborted", False, "the engine failed: out of memory"),
    }
    assert by_id[second.id]["reason"]


def test_it_says_how_many_samples_the_next_update_still_needs(gateway: RunningGateway) -> None:
    assert told(gateway)["next_update"] == {"collected": 0, "needed": 16, "missing": 16, "enabled": True}
    gateway.engine.say("a")
    first = gateway.chat(user("q"))
    gateway.chat(user("q"), assistant("a"), user("good"))
    judge(gateway, first, 1)
    now = told(gateway)
    assert now["next_update"] == {"collected": 1, "needed": 16, "missing": 15, "enabled": True}
    assert now["counts"]["waiting_update"] == now["counts"]["waiting_next_state"] == 1
    assert set(now["counts"]) == {state.value for state in TurnState}


def test_a_turn_is_told_in_numbers_and_without_its_words(gateway: RunningGateway) -> None:
    gateway.engine.say("<tool_call>secret reply")
    turn = gateway.chat(user("secret words"), tools=TOOLS)
    response = gateway.http.get("/v1/admin/turns")
    assert "secret" not in response.text
    (listed,) = response.json()["data"]
    assert (listed["prompt_tokens"], listed["response_tokens"]) == (
        len(turn.prompt_ids),
        len(turn.response_ids),
    )
    assert (listed["kind"], listed["policy_version"], listed["finish_reason"]) == ("main", 0, "stop")
    assert listed["unread_tool_calls"] == 1
    assert listed["update_id"] is None


def test_turns_are_listed_by_state_and_session_and_in_pages(gateway: RunningGateway) -> None:
    ids = [gateway.chat(user(f"q{n}"), session_id="s").id for n in range(5)]
    side = gateway.chat(user("x"), turn_type="side")
    assert [turn["turn_id"] for turn in told(gateway, state="side")["data"]] == [side.id]
    assert {turn["turn_id"] for turn in told(gateway, session="s")["data"]} == set(ids)
    assert told(gateway, session=side.session_id)["data"][0]["turn_id"] == side.id
    seen, after = [], {}
    while True:
        page = told(gateway, limit=4, **after)
        seen += [turn["turn_id"] for turn in page["data"]]
        after = {"after": page["last_id"]}
        if not page["has_more"]:
            break
    assert seen == [side.id, *reversed(ids)]
    assert told(gateway, **after)["data"] == []


@pytest.mark.parametrize(
    ("query", "param"), [({"state": "lost"}, "state"), ({"limit": "0"}, "limit"), ({"limit": "x"}, "limit")]
)
def test_a_wrong_question_is_named(gateway: RunningGateway, query: dict[str, str], param: str) -> None:
    response = gateway.http.get("/v1/admin/turns", params=query)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_key_sees_its_own_turns_alone_and_without_one_nothing_is_told(tmp_path: Path) -> None:
    with running_gateway(tmp_path, api_keys=("alice", "bob")) as gateway:
        gateway.chat(user("q"))
        bob = {"Authorization": "Bearer bob"}
        seen = gateway.http.get("/v1/admin/turns", headers=bob).json()
        assert seen["data"] == []
        assert sum(seen["counts"].values()) == 0
        assert len(told(gateway)["data"]) == 1
        del gateway.http.headers["Authorization"]
        for path in ("/v1/admin/turns", "/v1/admin/status"):
            assert gateway.http.get(path).status_code == 401


def test_the_status_says_what_serves_and_what_was_ignored(gateway: RunningGateway) -> None:
    gateway.chat(user("q"), store=True, reasoning_effort="high")
    gateway.chat(user("q"), store=False)
    gateway.store.report("judge", "waiting", judged=3)
    status = gateway.http.get("/v1/admin/status").json()
    assert (status["model"], status["policy_version"], status["context_length"]) == (MODEL, 0, 4096)
    assert status["tool_dialect"] == "hermes"
    assert status["ignored_fields"] == {"store": 2, "reasoning_effort": 1}
    assert (status["running_requests"], status["held_requests"], status["unread_tool_calls"]) == (0, 0, 0)
    judge_said = next(process for process in status["processes"] if process["name"] == "judge")
    assert (judge_said["phase"], judge_said["detail"]) == ("waiting", {"judged": 3})
    assert judge_said["said_seconds_ago"] >= 0


def test_names_of_ignored_fields_are_bounded(gateway: RunningGateway) -> None:
    gateway.chat(user("q"), **{f"made_up_{n}" + "x" * 100: n for n in range(300)})
    ignored = gateway.http.get("/v1/admin/status").json()["ignored_fields"]
    assert sum(ignored.values()) == 300
    assert len(ignored) <= 101
    assert max(map(len, ignored)) <= 64
