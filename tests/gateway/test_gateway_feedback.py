"""Feedback, outcomes and closing over HTTP."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest
from running_gateway import RunningGateway, assistant, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import Judgement, PolicyVersion, Turn, TurnState, Update, VersionState, Vote


def feedback(gateway: RunningGateway, response_id: str, **fields: Any) -> httpx2.Response:
    return gateway.http.post("/v1/feedback", json={"response_id": response_id, **fields})


def train(gateway: RunningGateway, turn: Turn) -> None:
    """What judge and learner would do with a turn."""
    (state,) = gateway.store.conversations.next_states(turn.id)
    judgement = Judgement(
        "judge_1", turn.id, state.id, "test", 1, None, (Vote("evaluative", 1),), time.time()
    )
    gateway.store.learning.add_judgement(judgement)
    version = PolicyVersion(1, 0, VersionState.CANDIDATE, "v1", "0" * 64, time.time(), update_id=1)
    gateway.store.learning.record_update(
        Update(1, 1, "binary", (turn.id,), {}, time.time(), time.time()), version
    )


@pytest.mark.parametrize("prefix", ["chatcmpl-", ""])
@pytest.mark.parametrize(
    ("fields", "score", "words"),
    [
        ({"score": -1}, -1, []),
        ({"text": "too long"}, None, ["too long"]),
        ({"score": 0, "text": "meh"}, 0, ["meh"]),
        ({"score": 1, "text": None}, 1, []),
    ],
)
def test_feedback_sends_a_turn_to_the_judge(
    gateway: RunningGateway, prefix: str, fields: dict[str, Any], score: int | None, words: list[str]
) -> None:
    turn = gateway.chat(user("q"))
    response = feedback(gateway, prefix + turn.id, **fields)
    assert response.status_code == 200
    assert response.json() == {"turn_id": turn.id, "state": "waiting_judge"}
    (state,) = gateway.store.conversations.next_states(turn.id)
    assert state.given_score == score
    assert gateway.next_states(turn) == [("feedback", words)]


def test_feedback_counts_after_the_session_closed(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("q"), session_done=True)
    assert feedback(gateway, turn.id, score=1).json()["state"] == "waiting_judge"


@pytest.mark.parametrize(
    "fields", [{}, {"text": ""}, {"score": 2}, {"score": "1"}, {"score": 0.5}, {"text": 5}, {"score": True}]
)
def test_feedback_that_says_nothing_usable_is_refused(
    gateway: RunningGateway, fields: dict[str, Any]
) -> None:
    turn = gateway.chat(user("q"))
    assert feedback(gateway, turn.id, **fields).status_code == 400
    assert gateway.next_states(turn) == []


def test_feedback_on_an_unknown_reply_is_not_found(gateway: RunningGateway) -> None:
    response = feedback(gateway, "chatcmpl-turn_0", score=1)
    assert response.status_code == 404
    assert response.json()["error"]["param"] == "response_id"


def test_feedback_on_a_side_turn_is_a_conflict(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("q"), turn_type="side")
    response = feedback(gateway, turn.id, score=1)
    assert response.status_code == 409
    assert "side turn" in response.json()["error"]["message"]
    assert gateway.next_states(turn) == []


def test_feedback_on_an_aborted_turn_is_a_conflict(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("half", fails_after=2))
    response = gateway.post([user("q")])
    response = feedback(gateway, response.headers["x-turn-id"], score=1)
    assert response.status_code == 409
    assert "aborted" in response.json()["error"]["message"]


def test_feedback_on_a_trained_turn_is_a_conflict_but_its_words_are_kept(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("q"))
    feedback(gateway, turn.id, score=1)
    train(gateway, turn)
    response = feedback(gateway, turn.id, text="on second thought")
    assert response.status_code == 409
    assert "already trained" in response.json()["error"]["message"]
    assert gateway.next_states(turn)[-1] == ("feedback", ["on second thought"])
    assert gateway.turn(turn.id).state is TurnState.TRAINED


@pytest.mark.parametrize("name", ["mine", "given"])
def test_an_outcome_scores_the_last_reply_and_closes_the_session(gateway: RunningGateway, name: str) -> None:
    headers = {"X-Session-Id": "episode-7"}
    gateway.engine.say("a", "b", Script("c", fails_after=0), "d")
    gateway.chat(user("q"), headers=headers)
    last = gateway.chat(user("q"), assistant("a"), user("go on"), headers=headers)
    gateway.post([user("q"), assistant("a"), user("cut off")], headers=headers)
    gateway.chat(user("title?"), headers={**headers, "X-Turn-Type": "side"})
    session_id = "episode-7" if name == "mine" else last.session_id
    response = gateway.http.post(f"/v1/sessions/{session_id}/outcome", json={"score": 1, "text": "passed"})
    assert response.json() == {"session_id": last.session_id, "turn_id": last.id, "state": "waiting_judge"}
    assert gateway.next_states(last)[-1] == ("outcome", ["passed"])
    session = gateway.store.conversations.session(last.session_id)
    assert session is not None
    assert session.close_reason == "outcome"


def test_an_outcome_without_a_reply_to_score_is_a_conflict(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("q"), turn_type="side")
    response = gateway.http.post(f"/v1/sessions/{turn.session_id}/outcome", json={"score": 1})
    assert response.status_code == 409
    assert gateway.http.post("/v1/sessions/unknown/outcome", json={"score": 1}).status_code == 404
    assert gateway.http.post("/v1/sessions/unknown/outcome", json={}).json()["error"]["param"] == "score"


def test_a_client_can_close_a_session(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("q"))
    response = gateway.http.post(f"/v1/sessions/{turn.session_id}/close")
    assert response.json() == {"session_id": turn.session_id, "closed": True}
    assert gateway.turn(turn.id).state is TurnState.UNPAIRED
