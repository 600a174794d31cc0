"""Turns of another model never train, whatever it is called and whoever uses the folder later."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from answers import assistant, chat_body, user
from other_server import OtherServer, body
from running_gateway import running_gateway
from running_recorder import running_recorder
from test_export import OURS, TURN, judge

from openclaw_rl.model import PolicyVersion, TurnState, Update, VersionState
from openclaw_rl.store import ConflictError, Store


def test_a_folder_that_recorded_serves_the_policy_afterwards_and_nothing_mixes(
    tmp_path: Path, upstream: OtherServer
) -> None:
    upstream.answers.append(body({**chat_body("hello"), "model": "tiny"}))
    with running_recorder(tmp_path, upstream.url) as recorder:
        del recorder.http.headers["authorization"]
        recorded = recorder.turn(recorder.chat(user("hi")))
    assert recorded.model == "tiny", "the same name as the policy's"
    with running_gateway(tmp_path) as gateway:
        own = gateway.chat(user("hi"), assistant("hello"), user("wrong"))
        assert own.by_policy
        assert own.parent_id is None
        assert gateway.next_states(recorded) == []


@pytest.mark.parametrize("model", ["tiny", "big"])
def test_only_turns_of_the_policy_are_samples(tmp_path: Path, model: str) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    store.conversations.open_session("sess_1", "default")
    store.conversations.add_turn(OURS)
    # Also one that an error of ours left in the queue of the learner.
    store.conversations.add_turn(replace(TURN, model=model))
    store.conversations.add_turn(replace(TURN, id="turn_0", model=model, state=TurnState.WAITING_UPDATE))
    for turn in ("turn_1", "turn_2"):
        judge(store, turn, 1, None)
    assert [sample.turn.id for sample in store.learning.waiting_samples(10)] == ["turn_2"]
    update = Update(1, 1, "binary", ("turn_2", "turn_0"), {}, time.time(), time.time())
    with pytest.raises(ConflictError, match="1 of 2 samples"):
        store.learning.record_update(
            update, PolicyVersion(1, 0, VersionState.CANDIDATE, "p", "s", time.time(), update_id=1)
        )
    store.close()


def test_a_turn_of_another_model_can_hold_no_tokens_of_the_policy() -> None:
    with pytest.raises(ValueError, match="holds tokens of the policy"):
        replace(TURN, response_ids=(1,), logprobs=(-1.0,))
