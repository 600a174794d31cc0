"""Judgements, samples, updates and policy versions: what the judge and the learner write.

Owns the one promise that matters most: a turn is marked trained in the same transaction that records
its update and the version it made, and only if it was still waiting. Knows no objective and no weights.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from openclaw_rl.model import (
    OTHER_MODEL,
    Judgement,
    NextState,
    PolicyVersion,
    Sample,
    Turn,
    TurnKind,
    TurnState,
    Update,
    VersionState,
    made_by_other,
)
from openclaw_rl.store import rows, schema
from openclaw_rl.store.database import Database

UNDER_A_GRAMMAR = "judged, but sampled under a grammar: its tokens were not the policy's own choice"
"""Why a turn with a forced call or a structured reply does not train."""


_FINAL = (VersionState.REJECTED.value, VersionState.DELETED.value)


class ConflictError(RuntimeError):
    """Someone else trained or changed a sample of an update, or took its number; nothing was recorded."""


def _unfit(connection: Connection, turn_id: str) -> tuple[TurnState, str] | None:
    """Where a judged turn goes that must not train, and why."""
    turns = schema.turns
    query = select(
        turns.c.model,
        turns.c.policy_version,
        turns.c.sampling["grammar"].as_string().label("grammar"),
        turns.c.sampling["unlearnable"].as_string().label("unlearnable"),
    )
    turn = connection.execute(query.where(turns.c.id == turn_id)).one()
    if turn.policy_version == OTHER_MODEL:
        return TurnState.RECORDED, made_by_other(turn.model)
    if reason := UNDER_A_GRAMMAR if turn.grammar else turn.unlearnable:
        return TurnState.SET_ASIDE, reason
    return None


class Learning:
    def __init__(self, database: Database) -> None:
        self._database = database

    # Judging

    def turns_to_judge(self, limit: int) -> list[tuple[Turn, NextState]]:
        """Paired main turns with their newest next state, longest waiting first."""
        turns, next_states = schema.turns, schema.next_states
        query = (
            select(turns)
            .where(turns.c.state == TurnState.WAITING_JUDGE.value, turns.c.kind == TurnKind.MAIN.value)
            .order_by(turns.c.finished_at)
            .limit(limit)
        )
        with self._database.read() as connection:
            found = [rows.turn_of_row(row) for row in connection.execute(query).mappings()]
            pairs = []
            for turn in found:
                newest = (
                    connection.execute(
                        select(next_states)
                        .where(next_states.c.turn_id == turn.id)
                        .order_by(next_states.c.created_at.desc())
                        .limit(1)
                    )
                    .mappings()
                    .one()
                )
                pairs.append((turn, rows.next_state_of_row(newest)))
        return pairs

    def add_judgement(self, judgement: Judgement) -> TurnState:
        """Keep a judgement and move its turn on: to the learner, or to the reason why it goes no further.

        Returns the state the turn is in afterwards. A turn that meanwhile got a newer next state keeps
        waiting for it to be judged, and one that no longer waits for a judge stays where it is.
        """
        if judgement.score is None and not judgement.hint:
            state, reason = TurnState.UNJUDGED, "no vote could be read"
        elif not judgement.score and not judgement.hint:
            state, reason = TurnState.NO_SIGNAL, "score 0 and no hint"
        else:
            state, reason = TurnState.WAITING_UPDATE, ""
        turns, next_states = schema.turns, schema.next_states
        newest = (
            select(next_states.c.id)
            .where(next_states.c.turn_id == judgement.turn_id)
            .order_by(next_states.c.created_at.desc())
            .limit(1)
            .scalar_subquery()
        )
        with self._database.write() as connection:
            connection.execute(insert(schema.judgements).values(**rows.row_of_judgement(judgement)))
            if state is TurnState.WAITING_UPDATE:
                state, reason = _unfit(connection, judgement.turn_id) or (state, reason)
            moved = connection.execute(
                update(turns)
                .where(
                    turns.c.id == judgement.turn_id,
                    turns.c.state == TurnState.WAITING_JUDGE.value,
                    newest == judgement.next_state_id,
                )
                .values(state=state.value, state_reason=reason)
            )
            if moved.rowcount:
                return state
            unmoved = select(turns.c.state).where(turns.c.id == judgement.turn_id)
            return TurnState(connection.execute(unmoved).scalar_one())

    def judgements(self, turn_id: str) -> list[Judgement]:
        table = schema.judgements
        query = select(table).where(table.c.turn_id == turn_id).order_by(table.c.created_at)
        with self._database.read() as connection:
            return [rows.judgement_of_row(row) for row in connection.execute(query).mappings()]

    # Learning

    def waiting_samples(self, limit: int) -> list[Sample]:
        """Judged turns with a signal, oldest first, at most `limit`."""
        turns = schema.turns
        query = (
            select(turns)
            .where(turns.c.state == TurnState.WAITING_UPDATE.value, turns.c.policy_version != OTHER_MODEL)
            .order_by(turns.c.finished_at, turns.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            waiting = [rows.turn_of_row(row) for row in connection.execute(query).mappings()]
        return [self._sample(turn) for turn in waiting]

    def sample(self, turn_id: str) -> Sample | None:
        """The sample made of a turn, or None while it has no judgement."""
        turns = schema.turns
        with self._database.read() as connection:
            found = connection.execute(select(turns).where(turns.c.id == turn_id)).mappings().first()
        if found is None or not self.judgements(turn_id):
            return None
        return self._sample(rows.turn_of_row(found))

    def _sample(self, turn: Turn) -> Sample:
        # By the newest next state that was judged: the judgement of an older one may have come in later.
        judgements, next_states = schema.judgements, schema.next_states
        newest = (
            select(judgements)
            .join(next_states, next_states.c.id == judgements.c.next_state_id)
            .where(judgements.c.turn_id == turn.id)
            .order_by(next_states.c.created_at.desc(), judgements.c.created_at.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            judgement = rows.judgement_of_row(connection.execute(newest).mappings().one())
            judged = select(next_states).where(next_states.c.id == judgement.next_state_id)
            row = connection.execute(judged).mappings().one()
        return Sample(turn, judgement, rows.next_state_of_row(row))

    def earlier_hint(self, sample: Sample) -> str | None:
        """The hint that the sample's tenant gave last, in words, before the sample was judged.

        None for a turn that a tool's result followed, and never a hint taken from such a result: what a
        person wishes may stand, what went wrong in a tool does not.
        """
        if not sample.next_state.opens_with_user:
            return None
        judgements, turns, sessions = schema.judgements, schema.turns, schema.sessions
        next_states = schema.next_states
        tenant = select(sessions.c.tenant).where(sessions.c.id == sample.turn.session_id).scalar_subquery()
        newest = (
            select(judgements.c.hint)
            .join(turns, turns.c.id == judgements.c.turn_id)
            .join(sessions, sessions.c.id == turns.c.session_id)
            .join(next_states, next_states.c.id == judgements.c.next_state_id)
            .where(
                sessions.c.tenant == tenant,
                next_states.c.messages[0]["role"].as_string() == "user",
                judgements.c.hint.is_not(None),
                judgements.c.created_at < sample.judgement.created_at,
            )
            .order_by(judgements.c.created_at.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            return connection.execute(newest).scalars().first()

    def set_aside(self, turn_id: str, reason: str) -> None:
        """Take a waiting sample out of the queue for good, with the reason."""
        table = schema.turns
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.id == turn_id, table.c.state == TurnState.WAITING_UPDATE.value)
                .values(state=TurnState.SET_ASIDE.value, state_reason=reason)
            )

    def record_update(self, done: Update, version: PolicyVersion) -> None:
        """Record an update, its version and the end of its samples, all or nothing.

        Raises ConflictError, and records nothing, unless every one of its turns was still waiting, none was
        judged anew since the update began, and nobody else took its numbers.
        """
        turns, judgements = schema.turns, schema.judgements
        row = {name: value for name, value in asdict(done).items() if name != "turn_ids"}
        with self._database.write() as connection:
            try:
                connection.execute(insert(schema.updates).values(**row))
                connection.execute(insert(schema.versions).values(**asdict(version)))
            except IntegrityError:
                raise ConflictError(f"update {done.id} or version {version.number} exists already") from None
            anew = select(judgements.c.turn_id).where(
                judgements.c.turn_id.in_(done.turn_ids), judgements.c.created_at > done.started_at
            )
            if judged := connection.execute(anew).scalars().first():
                raise ConflictError(f"update {done.id}: {judged} was judged anew while it ran")
            marked = connection.execute(
                update(turns)
                .where(
                    turns.c.id.in_(done.turn_ids),
                    turns.c.state == TurnState.WAITING_UPDATE.value,
                    turns.c.policy_version != OTHER_MODEL,
                )
                .values(state=TurnState.TRAINED.value, state_reason="", update_id=done.id)
            )
            if marked.rowcount != len(done.turn_ids):
                raise ConflictError(
                    f"update {done.id}: {marked.rowcount} of {len(done.turn_ids)} samples were still waiting"
                )

    def update(self, update_id: int) -> Update | None:
        table, turns = schema.updates, schema.turns
        with self._database.read() as connection:
            found = connection.execute(select(table).where(table.c.id == update_id)).mappings().first()
            if found is None:
                return None
            turn_ids = connection.execute(
                select(turns.c.id).where(turns.c.update_id == update_id).order_by(turns.c.finished_at)
            ).scalars()
            return rows.update_of_row(found, turn_ids)

    def last_update(self) -> Update | None:
        with self._database.read() as connection:
            newest = connection.execute(select(func.max(schema.updates.c.id))).scalar()
        return None if newest is None else self.update(newest)

    # Versions

    def ensure_base_version(self) -> PolicyVersion:
        """Version 0, the model as loaded; created on the first call."""
        base = PolicyVersion(0, None, VersionState.SERVING, None, None, time.time())
        table = schema.versions
        with self._database.write() as connection:
            found = connection.execute(select(table).where(table.c.number == 0)).mappings().first()
            if found is not None:
                return rows.version_of_row(found)
            connection.execute(insert(table).values(**asdict(base)))
        return base

    def version(self, number: int) -> PolicyVersion | None:
        table = schema.versions
        with self._database.read() as connection:
            found = connection.execute(select(table).where(table.c.number == number)).mappings().first()
        return rows.version_of_row(found) if found else None

    def versions(self) -> list[PolicyVersion]:
        """All versions, newest first."""
        table = schema.versions
        with self._database.read() as connection:
            found = connection.execute(select(table).order_by(table.c.number.desc())).mappings()
            return [rows.version_of_row(row) for row in found]

    def newest_good_version(self) -> PolicyVersion:
        """What should serve and be trained next: the newest neither rejected, rolled back nor deleted."""
        bad = (VersionState.REJECTED, VersionState.ROLLED_BACK, VersionState.DELETED)
        return next(version for version in self.versions() if version.state not in bad)

    def serving_version(self) -> PolicyVersion | None:
        return next((v for v in self.versions() if v.state is VersionState.SERVING), None)

    def mark_serving(self, number: int) -> bool:
        """Record that a version is live, and retire the one before it.

        Records nothing and says False when the version was rejected or deleted meanwhile: both are final.
        """
        table = schema.versions
        with self._database.write() as connection:
            marked = connection.execute(
                update(table)
                .where(table.c.number == number, table.c.state.not_in(_FINAL))
                .values(state=VersionState.SERVING.value, state_reason="")
            )
            if marked.rowcount == 0:
                return False
            connection.execute(
                update(table)
                .where(table.c.state == VersionState.SERVING.value, table.c.number != number)
                .values(state=VersionState.RETIRED.value)
            )
        return True

    def mark_rejected(self, number: int, reason: str) -> None:
        table = schema.versions
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.number == number)
                .values(state=VersionState.REJECTED.value, state_reason=reason)
            )

    def mark_deleted(self, number: int) -> None:
        """Record that a version's files are gone. Why it did not serve, if it did not, stays its reason."""
        table = schema.versions
        with self._database.write() as connection:
            connection.execute(
                update(table).where(table.c.number == number).values(state=VersionState.DELETED.value)
            )

    def next_numbers(self) -> tuple[int, int]:
        """The (update id, version number) that the next update will take."""
        with self._database.read() as connection:
            last_update = connection.execute(select(func.max(schema.updates.c.id))).scalar() or 0
            last_version = connection.execute(select(func.max(schema.versions.c.number))).scalar() or 0
        return last_update + 1, last_version + 1
