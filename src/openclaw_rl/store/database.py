"""The database underneath: how it is opened and what a transaction means.

SQLite in WAL mode by default. A write takes the lock at once (no upgrade from read to write, so no
deadlock between processes) and is on disk before it returns; a read takes no lock. Knows no table.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event

BUSY_SECONDS = 30
_READ_ONLY = "openclaw_read_only"


class Database:
    """Connections for reading and transactions for writing; safe across threads and processes."""

    def __init__(self, engine: Engine) -> None:
        self._writer = engine
        self._reader = engine.execution_options(**{_READ_ONLY: True})

    @classmethod
    def sqlite(cls, path: Path) -> Database:
        """Open the SQLite file at `path`, created with its folder when missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Errors are logged, and a statement's parameters are conversation text.
        engine = create_engine(
            f"sqlite:///{path}", connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True
        )
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return cls(engine)

    def read(self) -> AbstractContextManager[Connection]:
        return self._reader.connect()

    def write(self) -> AbstractContextManager[Connection]:
        """One transaction: committed at the end of the block, rolled back if it raises."""
        return self._writer.begin()

    def close(self) -> None:
        self._writer.dispose()


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Transactions are begun below; Python's sqlite3 would begin them late and deferred.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    _enter_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _enter_wal(connection: sqlite3.Connection) -> None:
    # Processes that open a new file together meet a lock here that SQLite's own time-out does not cover.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
