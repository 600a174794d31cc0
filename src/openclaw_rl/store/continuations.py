"""The turns that a request may continue, retry or edit: looked up by hashes, and read no further than needed.

Every look-up is one indexed query over delivered main turns of one tenant. Knows nothing of how hashes are
made or of what follows from a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, case, func, null, select

from openclaw_rl.model import Message, TurnKind, TurnState
from openclaw_rl.store import schema
from openclaw_rl.store.database import Database

_MOST_ALIKE = 20
"""Turns with one request that are compared further, the newest first."""
_MOST_HISTORIES = 6
"""The same for turns with one reply, each with the messages before it."""
_LONGEST_HISTORY = 500_000
"""Characters of a request's stored messages beyond which they are not compared."""
MOST_SIBLINGS = 256
"""Turns from the same point that are looked at, the newest first: more than any edit or choice needs."""


@dataclass(frozen=True, slots=True)
class PlacedTurn:
    """What is needed of a stored turn to place others by it."""

    id: str
    session_id: str
    parent_id: str | None
    state: TurnState
    conversation_hash: str
    request_hash: str
    finished_at: float

    @property
    def is_waiting(self) -> bool:
        return self.state is TurnState.WAITING_NEXT_STATE


_TURNS, _SESSIONS = schema.turns, schema.sessions
_PLACE = (
    _TURNS.c.id,
    _TURNS.c.session_id,
    _TURNS.c.parent_id,
    _TURNS.c.state,
    _TURNS.c.conversation_hash,
    _TURNS.c.request_hash,
    _TURNS.c.finished_at,
)


class Continuations:
    def __init__(self, database: Database) -> None:
        self._database = database

    def continued(
        self, conversation_hashes: Sequence[str], tenant: str, session_id: str | None = None
    ) -> PlacedTurn | None:
        """The turn whose conversation a request continues.

        `conversation_hashes` are those of the request's prefixes, longest first; the first that any turn
        has decides. Among turns of equal hash, one still waiting for its next state is preferred, then
        the newest. Only turns of `session_id` are found where it is given.
        """
        if not conversation_hashes:
            return None
        rank = {value: position for position, value in enumerate(conversation_hashes)}
        query = (
            self._delivered(tenant, session_id)
            .where(_TURNS.c.conversation_hash.in_(conversation_hashes))
            .order_by(
                case(rank, value=_TURNS.c.conversation_hash),
                _TURNS.c.state != TurnState.WAITING_NEXT_STATE.value,
                _TURNS.c.finished_at.desc(),
            )
            .limit(1)
        )
        with self._database.read() as connection:
            found = connection.execute(query).first()
        return _placed(found) if found else None

    def named(self, turn_id: str) -> PlacedTurn | None:
        """The turn of that id."""
        query = select(*_PLACE).where(_TURNS.c.id == turn_id)
        with self._database.read() as connection:
            found = connection.execute(query).first()
        return _placed(found) if found else None

    def messages_of(self, turn_id: str) -> list[Message]:
        """The messages of a turn's request."""
        with self._database.read() as connection:
            found = connection.execute(select(_TURNS.c.messages).where(_TURNS.c.id == turn_id)).scalar()
        return list(found or ())

    def siblings(self, *, session_id: str, parent_id: str | None) -> list[PlacedTurn]:
        """The delivered main turns of a session that answer from the same point, newest first.

        At most `MOST_SIBLINGS`.
        """
        same_parent = _TURNS.c.parent_id.is_(None) if parent_id is None else _TURNS.c.parent_id == parent_id
        query = (
            select(*_PLACE)
            .where(
                _TURNS.c.session_id == session_id,
                same_parent,
                _TURNS.c.kind == TurnKind.MAIN.value,
                _TURNS.c.state != TurnState.ABORTED.value,
            )
            .order_by(_TURNS.c.finished_at.desc())
            .limit(MOST_SIBLINGS)
        )
        with self._database.read() as connection:
            return [_placed(row) for row in connection.execute(query)]

    def asked_the_same(
        self, request_hash: str, tenant: str, session_id: str | None = None
    ) -> list[tuple[PlacedTurn, Message]]:
        """Turns that answered the same request, each with its reply, newest first."""
        query = self._delivered(tenant, session_id, _TURNS.c.reply).where(
            _TURNS.c.request_hash == request_hash
        )
        return self._newest(query, _MOST_ALIKE)

    def replied_the_same(
        self, reply_hash: str, tenant: str, session_id: str | None = None
    ) -> list[tuple[PlacedTurn, list[Message]]]:
        """Turns with the same reply, each with the messages of its request, newest first.

        A history that is too long to be compared is given as none.
        """
        is_short = func.length(_TURNS.c.messages) <= _LONGEST_HISTORY
        messages = case((is_short, _TURNS.c.messages), else_=null())
        query = self._delivered(tenant, session_id, messages).where(_TURNS.c.reply_hash == reply_hash)
        return [(turn, found or []) for turn, found in self._newest(query, _MOST_HISTORIES)]

    def _newest(self, query: Select[Any], most: int) -> list[tuple[PlacedTurn, Any]]:
        newest = query.order_by(_TURNS.c.finished_at.desc()).limit(most)
        with self._database.read() as connection:
            return [(_placed(row), row[-1]) for row in connection.execute(newest)]

    def _delivered(self, tenant: str, session_id: str | None, *more: Any) -> Select[Any]:
        query = (
            select(*_PLACE, *more)
            .join(_SESSIONS, _SESSIONS.c.id == _TURNS.c.session_id)
            .where(
                _TURNS.c.kind == TurnKind.MAIN.value,
                _TURNS.c.state != TurnState.ABORTED.value,
                _SESSIONS.c.tenant == tenant,
            )
        )
        return query if session_id is None else query.where(_TURNS.c.session_id == session_id)


def _placed(row: Any) -> PlacedTurn:
    return PlacedTurn(
        id=row.id,
        session_id=row.session_id,
        parent_id=row.parent_id,
        state=TurnState(row.state),
        conversation_hash=row.conversation_hash,
        request_hash=row.request_hash,
        finished_at=row.finished_at,
    )
