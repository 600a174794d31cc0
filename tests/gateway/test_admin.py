"""What the server tells of its turns: for each one why it did or did not become trainable."""

from __future__ import annotations

from typing import Any

import pytest
from running_gateway import MODEL, RunningGateway, user

TOOLS = [{"type": "function", "function": {"name": "read"}}]


def told(gateway: RunningGateway, **query: Any) -> dict[str, Any]:
    response = gateway.http.get("/v1/admin/turns", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


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
    assert listed["score"] is None


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
