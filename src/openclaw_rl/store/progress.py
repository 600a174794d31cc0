"""How far every turn has come, and why it did or did not become something to learn from.

Reads alone, and only what is needed to say so: neither messages nor tokens. The server's status routes and
`openclaw-rl status` tell the same numbers because they ask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select, tuple_

from openclaw_rl.model import OTHER_MODEL, TurnKind, TurnState, made_by_other
from openclaw_rl.store import schema
from openclaw_rl.store.database import Database

MEANING: Mapping[TurnState, str] = {
    TurnState.WAITING_NEXT_STATE: "wait for a next state",
    TurnState.WAITING_JUDGE: "wait for the judge",
    TurnState.WAITING_UPDATE: "wait for an update",
    TurnState.TRAINED: "trained",
    TurnState.SIDE: "side turns, never trained",
    TurnState.UNPAIRED: "unpaired: their session closed first",
    TurnState.SUPERSEDED: "superseded by a retry",
    TurnState.ABORTED: "aborted",
    TurnState.UNJUDGED: "unjudged: no vote could be read",
    TurnState.NO_SIGNAL: "judged, without a signal",
    TurnState.RECORDED: "recorded and judged: another model's, never trained",
    TurnState.SET_ASIDE: "set aside, unfit to learn from",
}
_AS_A_RULE = {
    TurnState.WAITING_NEXT_STATE: "waits for the next message of its conversation",
    TurnState.WAITING_JUDGE: "waits for the judge",
    TurnState.WAITING_UPDATE: "judged; waits for an update",
}
UNREAD_CALLS = "unread_tool_calls"
"""The mark that a stored reply carries when it holds such."""
UNDECIDED = (TurnState.WAITING_NEXT_STATE, TurnState.WAITING_JUDGE)
TRAINABLE = (TurnState.WAITING_UPDATE, TurnState.TRAINED)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one turn stands."""

    turn_id: str
    session_id: str
    kind: TurnKind
    state: TurnState
    kind_reason: str
    state_reason: str
    model: str
    policy_version: int
    prompt_tokens: int
    response_tokens: int
    finish_reason: str
    created_at: float
    update_id: int | None
    score: int | None
    """Of the newest judgement; None before one, and where no vote could be read."""
    unread_tool_calls: int
    """What looks like a tool call in its reply and could not be read as one."""

    @property
    def reason(self) -> str:
        """Why it stands where it does."""
        if self.state is TurnState.RECORDED:
            return self.state_reason
        stands = self.state_reason or _AS_A_RULE.get(self.state, MEANING[self.state])
        if self.state is TurnState.SIDE:
            stands = self.kind_reason
        return stands if self.by_policy else f"{made_by_other(self.model)}; {stands}"

    @property
    def by_policy(self) -> bool:
        return self.policy_version != OTHER_MODEL

    @property
    def trainable(self) -> bool | None:
        """None while that is not known."""
        if not self.by_policy:
            return False
        return None if self.state in UNDECIDED else self.state in TRAINABLE


@dataclass(frozen=True, slots=True)
class NextUpdate:
    """Samples that wait for the next update, of all tenants, and how many one takes."""

    collected: int
    needed: int

    @property
    def missing(self) -> int:
        return max(0, self.needed - self.collected)


class Progress:
    def __init__(self, database: Database) -> None:
        self._database = database

    def next_update(self, batch_size: int) -> NextUpdate:
        turns = schema.turns
        waiting = select(func.count()).where(turns.c.state == TurnState.WAITING_UPDATE.value)
        with self._database.read() as connection:
            return NextUpdate(connection.execute(waiting).scalar_one(), batch_size)

    def counts(self, tenant: str | None = None) -> dict[TurnState, int]:
        """Turns in each state, of one tenant where given."""
        turns, sessions = schema.turns, schema.sessions
        query = select(turns.c.state, func.count()).group_by(turns.c.state)
        if tenant is not None:
            query = query.join(sessions, sessions.c.id == turns.c.session_id)
            query = query.where(sessions.c.tenant == tenant)
        with self._database.read() as connection:
            return {TurnState(state): count for state, count in connection.execute(query)}

    def standings(
        self,
        tenant: str | None = None,
        *,
        session_id: str | None = None,
        state: TurnState | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Standing]:
        """Turns, of one tenant where given, newest first; `after` is where the page before ended."""
        turns, sessions, judgements = schema.turns, schema.sessions, schema.judgements
        score = (
            select(judgements.c.score)
            .where(judgements.c.turn_id == turns.c.id)
            .order_by(judgements.c.created_at.desc())
            .limit(1)
        )
        query = (
            select(
                turns.c.id,
                turns.c.session_id,
                turns.c.kind,
                turns.c.state,
                turns.c.kind_reason,
                turns.c.state_reason,
                turns.c.model,
                turns.c.policy_version,
                func.length(turns.c.prompt_ids) // 4,
                func.length(turns.c.response_ids) // 4,
                turns.c.finish_reason,
                turns.c.created_at,
                turns.c.update_id,
                score.scalar_subquery(),
                func.coalesce(turns.c.reply[UNREAD_CALLS].as_integer(), 0),
            )
            .join(sessions, sessions.c.id == turns.c.session_id)
            .order_by(turns.c.finished_at.desc(), turns.c.id.desc())
            .limit(limit)
        )
        if tenant is not None:
            query = query.where(sessions.c.tenant == tenant)
        if session_id is not None:
            query = query.where(turns.c.session_id == session_id)
        if state is not None:
            query = query.where(turns.c.state == state.value)
        if after is not None:
            earlier = select(turns.c.finished_at, turns.c.id).where(turns.c.id == after)
            query = query.where(tuple_(turns.c.finished_at, turns.c.id) < earlier.scalar_subquery())
        with self._database.read() as connection:
            return [
                Standing(turn_id, session, TurnKind(kind), TurnState(stands), *rest)
                for turn_id, session, kind, stands, *rest in connection.execute(query)
            ]
