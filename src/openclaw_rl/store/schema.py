"""The tables, and how an old database becomes a current one.

Owns names, types and indices. Knows nothing of who reads or writes them. Times are Unix seconds;
token ids are little-endian int32 and log-probs little-endian float32, so that a row is exact and small.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateColumn

SCHEMA_VERSION = 1

metadata = MetaData()

about = Table("about", metadata, Column("schema_version", Integer, nullable=False))

sessions = Table(
    "sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_active_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("close_reason", String),
    Index("sessions_open", "closed_at", "last_active_at"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", String, primary_key=True),
    Column("session_id", String, ForeignKey("sessions.id"), nullable=False),
    Column("parent_id", String),
    Column("kind", String, nullable=False),
    Column("kind_reason", String, nullable=False),
    Column("state", String, nullable=False),
    Column("state_reason", String, nullable=False),
    Column("model", String, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("messages", JSON, nullable=False),
    Column("tools", JSON, nullable=False),
    Column("reply", JSON, nullable=False),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("response_ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("sampling", JSON, nullable=False),
    Column("finish_reason", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=False),
    Column("conversation_hash", String, nullable=False),
    Column("request_hash", String, nullable=False),
    Column("reply_hash", String, nullable=False, server_default=""),
    Column("update_id", Integer, ForeignKey("updates.id")),
    Index("turns_by_state", "state", "finished_at"),
    Index("turns_by_session", "session_id", "finished_at"),
    Index("turns_by_time", "finished_at", "id"),
    Index("turns_by_conversation", "conversation_hash"),
    Index("turns_by_request", "request_hash"),
    Index("turns_by_reply", "reply_hash"),
    Index("turns_by_update", "update_id"),
)

next_states = Table(
    "next_states",
    metadata,
    Column("id", String, primary_key=True),
    Column("turn_id", String, ForeignKey("turns.id"), nullable=False),
    Column("source", String, nullable=False),
    Column("messages", JSON, nullable=False),
    Column("given_score", Integer),
    Column("created_at", Float, nullable=False),
    Index("next_states_by_turn", "turn_id", "created_at"),
)

judgements = Table(
    "judgements",
    metadata,
    Column("id", String, primary_key=True),
    Column("turn_id", String, ForeignKey("turns.id"), nullable=False),
    Column("next_state_id", String, ForeignKey("next_states.id"), nullable=False),
    Column("judge", String, nullable=False),
    Column("score", Integer),
    Column("hint", Text),
    Column("votes", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Index("judgements_by_turn", "turn_id", "created_at"),
    Index("judgements_by_time", "created_at"),
)

recordings = Table(
    "recordings",
    metadata,
    Column("turn_id", String, ForeignKey("turns.id"), primary_key=True),
    Column("response_id", String),
    Column("usage", JSON),
    Index("recordings_by_response", "response_id"),
)

versions = Table(
    "versions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer),
    Column("state", String, nullable=False),
    Column("state_reason", String, nullable=False),
    Column("path", String),
    Column("sha256", String),
    Column("update_id", Integer),
    Column("created_at", Float, nullable=False),
)

updates = Table(
    "updates",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("method", String, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("finished_at", Float, nullable=False),
)

processes = Table(
    "processes",
    metadata,
    Column("name", String, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("phase", String, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("updated_at", Float, nullable=False),
)


class SchemaError(RuntimeError):
    """The database was written by a version of this program that we cannot read."""


def prepare(connection: Connection) -> None:
    """Create the tables in an empty database; in one that exists, check its version and add what is new.

    Raises SchemaError for a schema version other than ours.
    """
    is_new = not inspect(connection).has_table(about.name)
    if not is_new:
        found = connection.execute(select(about.c.schema_version)).scalar_one()
        if found != SCHEMA_VERSION:
            raise SchemaError(
                f"the store has schema version {found}, this program reads {SCHEMA_VERSION}; "
                f"use the openclaw-rl release that wrote it, or another data_dir"
            )
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        present = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in present:
                added = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {added}"))
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    if is_new:
        connection.execute(insert(about).values(schema_version=SCHEMA_VERSION))
