"""Sessions, turns and next states: what the gateway writes and everyone reads.

Each method is one transaction. It keeps the rule that a turn leaves `trained` never, and knows nothing
of how requests are matched to sessions or of who judges.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, and_, func, insert, or_, select, update

from openclaw_rl.model import Message, NextState, NextStateSource, Score, Session, Turn, TurnKind, TurnState
from openclaw_rl.store import rows, schema
from openclaw_rl.store.database import Database

OPEN_TO_NEXT_STATES = (
    TurnState.WAITING_NEXT_STATE,
    TurnState.WAITING_JUDGE,
    TurnState.UNPAIRED,
    TurnState.SUPERSEDED,
    TurnState.UNJUDGED,
    TurnState.NO_SIGNAL,
    TurnState.WAITING_UPDATE,
    TurnState.RECORDED,
)
"""States from which a (newer) next state sends a turn to the judge."""


def new_id(prefix: str) -> str:
    """A unique id that says what it names: `turn_…`, `ns_…`, `judge_…`."""
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def insert_turn(connection: Connection, turn: Turn) -> None:
    """Write a finished turn. One whose session was closed while it was answered waits for nothing either."""
    sessions = schema.sessions
    session = sessions.c.id == turn.session_id
    closed_as = connection.execute(select(sessions.c.close_reason).where(session)).scalar_one_or_none()
    if closed_as and turn.state is TurnState.WAITING_NEXT_STATE:
        turn = replace(turn, state=TurnState.UNPAIRED, state_reason=_closed(closed_as))
    connection.execute(insert(schema.turns).values(**rows.row_of_turn(turn)))
    connection.execute(update(sessions).where(session).values(last_active_at=turn.finished_at))


def _closed(reason: str) -> str:
    return f"session closed: {reason}"


class Conversations:
    def __init__(self, database: Database) -> None:
        self._database = database

    # Sessions

    def open_session(self, session_id: str, tenant: str) -> Session:
        """Return the session of that id, created or reopened as needed."""
        now = time.time()
        table = schema.sessions
        with self._database.write() as connection:
            found = connection.execute(select(table).where(table.c.id == session_id)).mappings().first()
            if found is None:
                opened = Session(session_id, tenant, created_at=now, last_active_at=now)
                connection.execute(insert(table).values(**asdict(opened)))
                return opened
            connection.execute(
                update(table)
                .where(table.c.id == session_id)
                .values(last_active_at=now, closed_at=None, close_reason=None)
            )
            return replace(rows.session_of_row(found), last_active_at=now, closed_at=None, close_reason=None)

    def session(self, session_id: str) -> Session | None:
        table = schema.sessions
        with self._database.read() as connection:
            found = connection.execute(select(table).where(table.c.id == session_id)).mappings().first()
        return rows.session_of_row(found) if found else None

    def close_session(self, session_id: str, reason: str) -> None:
        """Close it; its turns that still wait for a next state become unpaired."""
        with self._database.write() as connection:
            self._close(connection, [session_id], reason)

    def close_idle_sessions(self, idle_since: float) -> int:
        """Close every open session with no activity since then; returns how many."""
        table = schema.sessions
        with self._database.write() as connection:
            idle = connection.execute(
                select(table.c.id).where(table.c.closed_at.is_(None), table.c.last_active_at < idle_since)
            )
            session_ids = list(idle.scalars())
            self._close(connection, session_ids, "idle")
        return len(session_ids)

    def _close(self, connection: Connection, session_ids: Sequence[str], reason: str) -> None:
        if not session_ids:
            return
        sessions, turns = schema.sessions, schema.turns
        connection.execute(
            update(sessions)
            .where(sessions.c.id.in_(session_ids))
            .values(closed_at=time.time(), close_reason=reason)
        )
        connection.execute(
            update(turns)
            .where(turns.c.session_id.in_(session_ids), turns.c.state == TurnState.WAITING_NEXT_STATE.value)
            .values(state=TurnState.UNPAIRED.value, state_reason=_closed(reason))
        )

    # Turns

    def add_turn(self, turn: Turn) -> None:
        """Write a finished turn durably. Returns only when it would survive a crash."""
        with self._database.write() as connection:
            insert_turn(connection, turn)

    def turn(self, turn_id: str) -> Turn | None:
        table = schema.turns
        with self._database.read() as connection:
            found = connection.execute(select(table).where(table.c.id == turn_id)).mappings().first()
        return rows.turn_of_row(found) if found else None

    def recorded(self, response_id: str, tenant: str) -> Turn | None:
        """The tenant's newest turn that another server answered under this id; servers may use one twice."""
        turns, sessions, recordings = schema.turns, schema.sessions, schema.recordings
        query = (
            select(turns)
            .join(recordings, recordings.c.turn_id == turns.c.id)
            .join(sessions, sessions.c.id == turns.c.session_id)
            .where(recordings.c.response_id == response_id, sessions.c.tenant == tenant)
            .order_by(turns.c.finished_at.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            found = connection.execute(query).mappings().first()
        return rows.turn_of_row(found) if found else None

    def turns(
        self, *, session_id: str | None = None, state: TurnState | None = None, limit: int = 100
    ) -> list[Turn]:
        """The newest turns first, of one session or in one state where asked."""
        table = schema.turns
        query = select(table).order_by(table.c.finished_at.desc()).limit(limit)
        if session_id is not None:
            query = query.where(table.c.session_id == session_id)
        if state is not None:
            query = query.where(table.c.state == state.value)
        with self._database.read() as connection:
            return [rows.turn_of_row(row) for row in connection.execute(query).mappings()]

    def supersede(self, turn_id: str, reason: str) -> bool:
        """Mark a turn as replaced by a retry, if it still waits for its next state."""
        table = schema.turns
        with self._database.write() as connection:
            result = connection.execute(
                update(table)
                .where(table.c.id == turn_id, table.c.state == TurnState.WAITING_NEXT_STATE.value)
                .values(state=TurnState.SUPERSEDED.value, state_reason=reason)
            )
            return result.rowcount == 1

    # Next states

    def add_next_state(
        self,
        turn_id: str,
        source: NextStateSource,
        messages: Sequence[Message],
        given_score: Score | None = None,
    ) -> NextState:
        """Record what followed a turn and send the turn to the judge.

        Words that arrive after the turn was trained are kept beside it but change nothing.
        """
        next_state = NextState(new_id("ns"), turn_id, source, tuple(messages), time.time(), given_score)
        turns = schema.turns
        with self._database.write() as connection:
            connection.execute(
                insert(schema.next_states).values(
                    id=next_state.id,
                    turn_id=turn_id,
                    source=source,
                    messages=list(messages),
                    given_score=given_score,
                    created_at=next_state.created_at,
                )
            )
            connection.execute(
                update(turns)
                .where(
                    turns.c.id == turn_id,
                    turns.c.kind == TurnKind.MAIN.value,
                    turns.c.state.in_([state.value for state in OPEN_TO_NEXT_STATES]),
                )
                .values(state=TurnState.WAITING_JUDGE.value, state_reason=f"next state from {source}")
            )
        return next_state

    def next_states(self, turn_id: str) -> list[NextState]:
        """All that followed a turn, oldest first."""
        table = schema.next_states
        query = select(table).where(table.c.turn_id == turn_id).order_by(table.c.created_at)
        with self._database.read() as connection:
            return [rows.next_state_of_row(row) for row in connection.execute(query).mappings()]

    # Counts

    def count_sessions(self) -> dict[str, int]:
        table = schema.sessions
        with self._database.read() as connection:
            total = connection.execute(select(func.count()).select_from(table)).scalar_one()
            still_open = connection.execute(
                select(func.count()).select_from(table).where(table.c.closed_at.is_(None))
            ).scalar_one()
        return {"open": still_open, "closed": total - still_open}

    def count_turns(self) -> dict[TurnState, int]:
        table = schema.turns
        with self._database.read() as connection:
            counted = connection.execute(select(table.c.state, func.count()).group_by(table.c.state))
            return {TurnState(state): count for state, count in counted}

    def reasons(self, limit: int = 20) -> list[tuple[TurnState, str, int]]:
        """Why turns that will not train will not: (state, reason, how many), most frequent first."""
        table = schema.turns
        waiting = [TurnState.WAITING_NEXT_STATE, TurnState.WAITING_JUDGE, TurnState.WAITING_UPDATE]
        settled = and_(
            table.c.state.not_in([state.value for state in [*waiting, TurnState.TRAINED]]),
            or_(table.c.state_reason != "", table.c.kind_reason != ""),
        )
        reason = func.coalesce(func.nullif(table.c.state_reason, ""), table.c.kind_reason)
        query = (
            select(table.c.state, reason, func.count())
            .where(settled)
            .group_by(table.c.state, reason)
            .order_by(func.count().desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            return [(TurnState(state), why, count) for state, why, count in connection.execute(query)]
