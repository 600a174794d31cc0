"""Between nouns and rows: the one place that knows how a noun is laid out in a table."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from openclaw_rl.model import (
    Judgement,
    NextState,
    PolicyVersion,
    ProcessReport,
    Sampling,
    Session,
    Turn,
    TurnKind,
    TurnState,
    Update,
    VersionState,
    Vote,
)

Row = Mapping[Any, Any]


def pack(values: Iterable[float], typecode: str) -> bytes:
    """Pack numbers as little-endian bytes; `typecode` is "i" (int32) or "f" (float32)."""
    packed = array(typecode, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes, typecode: str) -> tuple[Any, ...]:
    unpacked = array(typecode)
    unpacked.frombytes(data)
    if sys.byteorder == "big":
        unpacked.byteswap()
    return tuple(unpacked)


def row_of_turn(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "parent_id": turn.parent_id,
        "kind": turn.kind.value,
        "kind_reason": turn.kind_reason,
        "state": turn.state.value,
        "state_reason": turn.state_reason,
        "model": turn.model,
        "policy_version": turn.policy_version,
        "messages": list(turn.messages),
        "tools": list(turn.tools),
        "reply": turn.reply,
        "prompt_ids": pack(turn.prompt_ids, "i"),
        "response_ids": pack(turn.response_ids, "i"),
        "logprobs": pack(turn.logprobs, "f"),
        "sampling": {**asdict(turn.sampling), "stop": list(turn.sampling.stop)},
        "finish_reason": turn.finish_reason,
        "created_at": turn.created_at,
        "finished_at": turn.finished_at,
        "conversation_hash": turn.conversation_hash,
        "request_hash": turn.request_hash,
        "reply_hash": turn.reply_hash,
        "update_id": turn.update_id,
    }


def turn_of_row(row: Row) -> Turn:
    fields = dict(row)
    sampling = fields.pop("sampling")
    return Turn(
        **{
            **fields,
            "kind": TurnKind(fields["kind"]),
            "state": TurnState(fields["state"]),
            "messages": tuple(fields["messages"]),
            "tools": tuple(fields["tools"]),
            "prompt_ids": unpack(fields["prompt_ids"], "i"),
            "response_ids": unpack(fields["response_ids"], "i"),
            "logprobs": unpack(fields["logprobs"], "f"),
            "sampling": Sampling(**{**sampling, "stop": tuple(sampling["stop"])}),
        }
    )


def session_of_row(row: Row) -> Session:
    return Session(**row)


def next_state_of_row(row: Row) -> NextState:
    return NextState(**{**row, "messages": tuple(row["messages"])})


def row_of_judgement(judgement: Judgement) -> dict[str, Any]:
    return {**asdict(judgement), "votes": [asdict(vote) for vote in judgement.votes]}


def judgement_of_row(row: Row) -> Judgement:
    return Judgement(**{**row, "votes": tuple(Vote(**vote) for vote in row["votes"])})


def version_of_row(row: Row) -> PolicyVersion:
    return PolicyVersion(**{**row, "state": VersionState(row["state"])})


def update_of_row(row: Row, turn_ids: Iterable[str]) -> Update:
    return Update(**{**row, "turn_ids": tuple(turn_ids)})


def report_of_row(row: Row) -> ProcessReport:
    return ProcessReport(**row)
