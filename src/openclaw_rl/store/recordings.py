"""Turns that another model made, with what its server said of them.

A recording is a turn without tokens, and beside it the answer's own id and usage. The row stands with the
first choice of an answer. Knows nothing of requests and protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select, update

from openclaw_rl.model import Turn
from openclaw_rl.store import schema
from openclaw_rl.store.conversations import insert_turn
from openclaw_rl.store.database import Database

Usage = dict[str, Any]
"""As the other server said it, in the words of its protocol."""


class Recordings:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, choices: Sequence[Turn], response_id: str, usage: Usage | None) -> None:
        """Write the choices of one answer durably, all or nothing."""
        with self._database.write() as connection:
            for turn in choices:
                insert_turn(connection, turn)
            connection.execute(
                insert(schema.recordings).values(
                    turn_id=choices[0].id, response_id=response_id or None, usage=usage
                )
            )

    def set_usage(self, turn_id: str, usage: Usage) -> None:
        """Keep the usage of an answer that told it after its end."""
        table = schema.recordings
        with self._database.write() as connection:
            connection.execute(update(table).where(table.c.turn_id == turn_id).values(usage=usage))

    def usage(self, turn_id: str) -> Usage | None:
        table = schema.recordings
        with self._database.read() as connection:
            return connection.execute(select(table.c.usage).where(table.c.turn_id == turn_id)).scalar()
