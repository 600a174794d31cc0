"""Turns with what followed them and what was said of that, in the order in which they were finished.

Read a page at a time, so that a store of any size goes by in little memory. Knows neither who reads nor in
which form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, tuple_

from openclaw_rl.model import Judgement, NextState, Turn
from openclaw_rl.store import rows, schema
from openclaw_rl.store.database import Database
from openclaw_rl.store.recordings import Usage

PAGE = 20
"""Turns in memory at once; one may be as large as a request."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn, and the newest next state that was judged with its newest judgement; else the newest alone."""

    turn: Turn
    next_state: NextState | None
    judgement: Judgement | None
    usage: Usage | None
    """What another server said of it, where one answered."""


class Exchanges:
    def __init__(self, database: Database) -> None:
        self._database = database

    def __iter__(self) -> Iterator[Exchange]:
        turns = schema.turns
        place = tuple_(turns.c.finished_at, turns.c.id)
        query = select(turns).order_by(turns.c.finished_at, turns.c.id).limit(PAGE)
        last: Turn | None = None
        while True:
            page = query if last is None else query.where(place > tuple_(last.finished_at, last.id))
            with self._database.read() as connection:
                found = [rows.turn_of_row(row) for row in connection.execute(page).mappings()]
                exchanges = _exchanges(connection, found)
            yield from exchanges
            if len(found) < PAGE:
                return
            last = found[-1]


def _exchanges(connection: Connection, turns: Sequence[Turn]) -> list[Exchange]:
    ids = [turn.id for turn in turns]
    states, judgements, recordings = schema.next_states, schema.judgements, schema.recordings
    followed: dict[str, list[NextState]] = defaultdict(list)
    of_turns = select(states).where(states.c.turn_id.in_(ids)).order_by(states.c.created_at)
    for row in connection.execute(of_turns).mappings():
        followed[row["turn_id"]].append(rows.next_state_of_row(row))
    # The last written for a next state stays.
    of_states = select(judgements).where(judgements.c.turn_id.in_(ids)).order_by(judgements.c.created_at)
    judged = {
        row["next_state_id"]: rows.judgement_of_row(row) for row in connection.execute(of_states).mappings()
    }
    said = select(recordings.c.turn_id, recordings.c.usage).where(recordings.c.turn_id.in_(ids))
    usages = {row.turn_id: row.usage for row in connection.execute(said)}
    exchanges = []
    for turn in turns:
        all_states = followed[turn.id]
        with_judgement = [state for state in all_states if state.id in judged]
        newest = next(reversed(with_judgement or all_states), None)
        judgement = judged.get(newest.id) if newest else None
        exchanges.append(Exchange(turn, newest, judgement, usages.get(turn.id)))
    return exchanges
