"""Turns and next states for the judge's tests, with only what a judge looks at filled in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openclaw_rl.model import (
    Message,
    NextState,
    NextStateSource,
    Sampling,
    Score,
    Turn,
    TurnKind,
    TurnState,
)

DEFAULT_REQUEST = "Explain how photosynthesis works."


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: Message) -> Message:
    message: Message = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls)} if calls else message


def call(name: str, call_id: str = "call_1", **arguments: Any) -> Message:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def tool(text: str, call_id: str = "call_1") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def make_turn(
    messages: Sequence[Message] | str = DEFAULT_REQUEST,
    reply: Message | str = "Plants turn light into sugar.",
    turn_id: str = "turn_1",
    finished_at: float = 1.0,
) -> Turn:
    return Turn(
        id=turn_id,
        session_id="session",
        kind=TurnKind.MAIN,
        state=TurnState.WAITING_NEXT_STATE,
        model="policy",
        policy_version=0,
        messages=(user(messages),) if isinstance(messages, str) else tuple(messages),
        reply=assistant(reply) if isinstance(reply, str) else reply,
        prompt_ids=(1, 2),
        response_ids=(3,),
        logprobs=(-0.5,),
        sampling=Sampling(),
        finish_reason="stop",
        created_at=0.0,
        finished_at=finished_at,
        conversation_hash=f"conversation of {turn_id}",
    )


def make_next_state(
    messages: Sequence[Message] | str = (),
    source: NextStateSource = "conversation",
    given_score: Score | None = None,
) -> NextState:
    said = (user(messages),) if isinstance(messages, str) else tuple(messages)
    return NextState("ns_1", "turn_1", source, said, 2.0, given_score)
