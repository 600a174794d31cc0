"""The labelled next states, as turns that a judge can be asked about.

Two files of JSON lines, one for each half: judges are tuned on the development half alone, and the held-out
half is in other conversations and other words. docs/judging.md says what the labels mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

from openclaw_rl.config import ConfigError
from openclaw_rl.model import Message, NextState, Sampling, Score, Turn, TurnKind, TurnState

Half = Literal["development", "held_out"]

CALL_ID = "call_1"


@dataclass(frozen=True, slots=True)
class Case:
    """One turn, what came after it, and what a careful reader makes of that."""

    id: str
    kind: str
    """What sort of next state it is, such as "asked again" or "tool error"."""
    language: Literal["en", "zh"]
    turn: Turn
    next_state: NextState
    score: Score
    hint: bool
    """Whether the next state says how the turn should have been."""


def load(half: Half) -> list[Case]:
    """The cases of one half, in the order of their file."""
    text = files("openclaw_rl.evals.judge_bench").joinpath(f"data/{half}.jsonl").read_text(encoding="utf-8")
    return [_case(json.loads(line)) for line in text.splitlines()]


def spread(cases: list[Case], most: int | None) -> list[Case]:
    """`most` of the cases at even distances in a list by kind, so that all kinds keep their shares."""
    if most is None or most >= len(cases):
        return cases
    by_kind = sorted(cases, key=lambda case: (case.kind, case.id))
    return [by_kind[i * len(cases) // most] for i in range(most)]


def halves(name: str) -> tuple[Half, ...]:
    """The halves that `all`, `development` or `held_out` names. Raises ConfigError for another name."""
    both: tuple[Half, ...] = get_args(Half)
    if name == "all":
        return both
    found = tuple(half for half in both if half == name)
    if not found:
        raise ConfigError(f"--half {name} is none; use all, development or held_out")
    return found


def _case(row: Mapping[str, Any]) -> Case:
    next_messages = tuple(_answering(message) for message in row["next"])
    return Case(
        id=row["id"],
        kind=row["kind"],
        language=row["language"],
        turn=_turn(row),
        next_state=NextState(
            f"next of {row['id']}", row["id"], row.get("source", "conversation"), next_messages, 1.0
        ),
        score=row["score"],
        hint=row["hint"],
    )


def _answering(message: Message) -> Message:
    return {**message, "tool_call_id": CALL_ID} if message["role"] == "tool" else message


def _turn(row: Mapping[str, Any]) -> Turn:
    reply: Message = {"role": "assistant", "content": row.get("reply")}
    if call := row.get("call"):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        reply["tool_calls"] = [{"id": CALL_ID, "type": "function", "function": function}]
    return Turn(
        id=row["id"],
        session_id=row["id"],
        kind=TurnKind.MAIN,
        state=TurnState.WAITING_JUDGE,
        model="labelled",
        policy_version=0,
        messages=({"role": "user", "content": row["request"]},),
        reply=reply,
        prompt_ids=(),
        response_ids=(),
        logprobs=(),
        sampling=Sampling(),
        finish_reason="tool_calls" if row.get("call") else "stop",
        created_at=0.0,
        finished_at=0.0,
        conversation_hash=row["id"],
    )
