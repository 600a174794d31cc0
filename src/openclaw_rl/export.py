"""The store as lines of JSON, one turn each, for training elsewhere and for looking at.

Reads the store and writes text. The form is described in docs/record-only.md; fields are added, never
changed. The command `export`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from openclaw_rl.folder_key import FolderKey
from openclaw_rl.model import Message, Score, TurnKind
from openclaw_rl.store import Store
from openclaw_rl.store.exchanges import Exchange
from openclaw_rl.store.progress import UNREAD_CALLS


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which turns are exported; by default all."""

    kind: TurnKind | None = None
    judged: bool = False
    """Only turns with a score or a hint."""
    min_score: Score | None = None
    """Only turns with this score or a higher one."""

    def takes(self, exchange: Exchange) -> bool:
        judgement = exchange.judgement
        score = judgement.score if judgement else None
        if self.kind is not None and exchange.turn.kind is not self.kind:
            return False
        if self.judged and (judgement is None or (score is None and not judgement.hint)):
            return False
        return self.min_score is None or (score is not None and score >= self.min_score)


def turns(store: Store, key: FolderKey, wanted: Wanted) -> Iterator[str]:
    """A line for each turn, oldest first."""
    return _lines(store, wanted, lambda exchange: _turn(exchange, key))


def fine_tuning(store: Store, wanted: Wanted) -> Iterator[str]:
    """A line for each main turn of score +1, in the form that chat fine-tuning takes."""
    good = Wanted(kind=TurnKind.MAIN, judged=wanted.judged, min_score=1)
    return _lines(store, good, _example)


def _lines(store: Store, wanted: Wanted, form: Callable[[Exchange], dict[str, Any]]) -> Iterator[str]:
    for exchange in store.exchanges:
        if wanted.takes(exchange):
            # Escaped, so that half a surrogate pair in somebody's words breaks no line.
            yield json.dumps(form(exchange), separators=(",", ":")) + "\n"


def _turn(exchange: Exchange, key: FolderKey) -> dict[str, Any]:
    turn, followed, judgement = exchange.turn, exchange.next_state, exchange.judgement
    return {
        "turn_id": turn.id,
        "session": key.opaque("session", turn.session_id),
        "parent_id": turn.parent_id,
        "kind": turn.kind.value,
        "kind_reason": turn.kind_reason,
        "state": turn.state.value,
        "state_reason": turn.state_reason,
        "messages": turn.messages,
        "tools": turn.tools,
        "reply": _reply(turn.reply),
        "finish_reason": turn.finish_reason,
        "next_state": {
            "source": followed.source,
            "messages": followed.messages,
            "given_score": followed.given_score,
            "created_at": followed.created_at,
        }
        if followed
        else None,
        "score": judgement.score if judgement else None,
        "hint": judgement.hint if judgement else None,
        "judge": judgement.judge if judgement else None,
        "votes": [
            {"question": vote.question, "score": vote.score, "hint": vote.hint, "error": vote.error}
            for vote in (judgement.votes if judgement else ())
        ],
        "model": turn.model,
        "by_policy": turn.by_policy,
        "policy_version": turn.policy_version if turn.by_policy else None,
        "usage": exchange.usage,
        "created_at": turn.created_at,
        "finished_at": turn.finished_at,
    }


def _example(exchange: Exchange) -> dict[str, Any]:
    turn = exchange.turn
    # Reasoning is no field of that form.
    reply = {name: value for name, value in _reply(turn.reply).items() if name != "reasoning_content"}
    # Replies before it may have been disliked; a weight of 0 says not to learn them.
    before = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in turn.messages]
    example: dict[str, Any] = {"messages": [*before, reply]}
    return {**example, "tools": turn.tools} if turn.tools else example


def _reply(reply: Message) -> Message:
    return {name: value for name, value in reply.items() if name != UNREAD_CALLS}
