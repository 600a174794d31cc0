"""The store as the loops see it: conversations, learning, recordings, and what the processes say of
themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, text

from openclaw_rl.model import ProcessReport
from openclaw_rl.store import rows, schema
from openclaw_rl.store.continuations import Continuations
from openclaw_rl.store.conversations import Conversations
from openclaw_rl.store.database import Database
from openclaw_rl.store.exchanges import Exchanges
from openclaw_rl.store.learning import Learning
from openclaw_rl.store.progress import Progress
from openclaw_rl.store.recordings import Recordings


class Store:
    """The durable meeting place of the four loops. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.conversations = Conversations(database)
        self.continuations = Continuations(database)
        self.learning = Learning(database)
        self.progress = Progress(database)
        self.recordings = Recordings(database)
        self.exchanges = Exchanges(database)
        with database.write() as connection:
            schema.prepare(connection)
        self.learning.ensure_base_version()

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open the SQLite store at `path`; a new file is readable by its owner alone.

        Raises SchemaError when another release of this program wrote it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        return cls(Database.sqlite(path))

    def ping(self) -> None:
        """Raise if the database cannot be reached."""
        with self._database.read() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self._database.close()

    def report(self, name: str, phase: str, **detail: Any) -> None:
        """Say what the process called `name` does now, for `status` and the demo."""
        table = schema.processes
        row = {"name": name, "pid": os.getpid(), "phase": phase, "detail": detail, "updated_at": time.time()}
        with self._database.write() as connection:
            connection.execute(delete(table).where(table.c.name == name))
            connection.execute(insert(table).values(**row))

    def reports(self) -> dict[str, ProcessReport]:
        table = schema.processes
        with self._database.read() as connection:
            return {
                row["name"]: rows.report_of_row(row) for row in connection.execute(select(table)).mappings()
            }
