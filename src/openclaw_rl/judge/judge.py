"""The judge as the loop sees it: the protocol, how settings choose one, and how votes become a judgement.

Knows no store. A score that was given outright is used as it is; a judge is then asked for the hint alone,
and not at all when nothing was said.
"""

from __future__ import annotations

import time
from typing import Protocol

from openclaw_rl.config import Settings
from openclaw_rl.judge import verdict
from openclaw_rl.judge.model_judge import ModelJudge
from openclaw_rl.judge.rules_judge import RulesJudge
from openclaw_rl.judge.transcript import words_of
from openclaw_rl.model import Judgement, NextState, Turn, Vote
from openclaw_rl.store import new_id


class Judge(Protocol):
    """Gives votes on a turn and its next state. A vote that failed is a vote with an error, no exception."""

    @property
    def name(self) -> str: ...

    async def judge(self, turn: Turn, next_state: NextState) -> tuple[Vote, ...]: ...

    async def close(self) -> None: ...


def make_judge(settings: Settings, server_url: str) -> Judge:
    """The judge that `settings.judge.kind` names; `server_url` is where our own server listens."""
    kind, asked = settings.judge.kind, settings.judge
    if kind == "rules":
        return RulesJudge()
    if kind == "self":
        keys = settings.server.api_keys
        return ModelJudge(
            server_url.rstrip("/").removesuffix("/v1") + "/v1",
            f"{settings.served_name}@0",
            keys[0].get_secret_value() if keys else "",
            asked,
            {"X-Turn-Type": "side"},
        )
    return ModelJudge(kind, asked.model, asked.api_key.get_secret_value(), asked)


async def judge_turn(judge: Judge, turn: Turn, next_state: NextState) -> Judgement:
    """Ask the judge where it has something to read, and make the judgement of its votes."""
    started = time.perf_counter()
    given = next_state.given_score
    said = any(words_of(message).strip() for message in next_state.messages)
    votes = await judge.judge(turn, next_state) if given is None or said else ()
    return Judgement(
        id=new_id("judge"),
        turn_id=turn.id,
        next_state_id=next_state.id,
        judge=judge.name if given is None else f"{judge.name}+given",
        score=verdict.score_of(votes) if given is None else given,
        hint=verdict.hint_of(votes),
        votes=votes,
        created_at=time.time(),
        seconds=time.perf_counter() - started,
    )
