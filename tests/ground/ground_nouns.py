"""Builders for the nouns that the store tests need; every value can be overridden by name."""

from __future__ import annotations

import time
from array import array
from typing import Any

from openclaw_rl.model import (
    Judgement,
    PolicyVersion,
    Sampling,
    Score,
    Turn,
    TurnKind,
    TurnState,
    Update,
    VersionState,
    Vote,
)
from openclaw_rl.store import Store, new_id


def float32(*values: float) -> tuple[float, ...]:
    """The values as a float32 holds them."""
    return tuple(array("f", values))


def a_turn(session_id: str = "s1", **changes: Any) -> Turn:
    now = time.time()
    turn: dict[str, Any] = {
        "id": new_id("turn"),
        "session_id": session_id,
        "kind": TurnKind.MAIN,
        "state": TurnState.WAITING_NEXT_STATE,
        "model": "tiny",
        "policy_version": 0,
        "messages": ({"role": "user", "content": "Hello"},),
        "reply": {"role": "assistant", "content": "Hi"},
        "prompt_ids": (1, 2, 3),
        "response_ids": (4, 5),
        "logprobs": float32(-0.5, -1.25),
        "sampling": Sampling(),
        "finish_reason": "stop",
        "created_at": now,
        "finished_at": now,
        "conversation_hash": "hash",
    }
    return Turn(**{**turn, **changes})


def add_turn(store: Store, session_id: str = "s1", tenant: str = "me", **changes: Any) -> Turn:
    """A turn written into a session that is opened for it."""
    store.conversations.open_session(session_id, tenant)
    turn = a_turn(session_id, **changes)
    store.conversations.add_turn(turn)
    return turn


def follow(store: Store, turn: Turn, text: str = "Too long.") -> str:
    """A user reply after the turn; returns the next state's id."""
    return store.conversations.add_next_state(turn.id, "conversation", [{"role": "user", "content": text}]).id


def judge(
    store: Store, turn: Turn, next_state_id: str, score: Score | None = -1, hint: str | None = None
) -> TurnState:
    votes = (Vote("evaluative", score, None, raw="\\boxed{-1}"), Vote("directive", None, hint, error=None))
    judgement = Judgement(
        new_id("judge"), turn.id, next_state_id, "rules", score, hint, votes, time.time(), seconds=0.25
    )
    return store.learning.add_judgement(judgement)


def add_sample(store: Store, session_id: str = "s1", **changes: Any) -> Turn:
    """A turn that waits for the learner."""
    turn = add_turn(store, session_id, **changes)
    judge(store, turn, follow(store, turn))
    return turn


def an_update(number: int, *turns: Turn) -> tuple[Update, PolicyVersion]:
    now = time.time()
    done = Update(number, number, "combined", tuple(t.id for t in turns), {"loss": 0.5}, now, now + 1)
    version = PolicyVersion(
        number, number - 1, VersionState.CANDIDATE, f"versions/{number}", "ab" * 32, now, update_id=number
    )
    return done, version


def state_of(store: Store, turn: Turn) -> TurnState:
    found = store.conversations.turn(turn.id)
    assert found is not None
    return found.state
