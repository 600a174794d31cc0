"""The store across processes: what was written survives, nobody meets a lock, old schemas are refused."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
from pathlib import Path

import pytest
from ground_nouns import add_turn, an_update, follow, judge
from test_store_turns import FULL_TURN

from openclaw_rl.model import TurnState
from openclaw_rl.store import ConflictError, SchemaError, Store

SPAWN = multiprocessing.get_context("spawn")
DEADLINE = 60.0


def write_and_die(path: Path) -> None:
    store = Store.open(path)
    store.conversations.open_session(FULL_TURN.session_id, "me")
    store.conversations.add_turn(FULL_TURN)
    os._exit(7)


def write_many(path: Path, session_id: str, count: int) -> None:
    store = Store.open(path)
    for number in range(count):
        turn = add_turn(store, session_id, prompt_ids=(number,))
        judge(store, turn, follow(store, turn))
        store.report(session_id, "writing", number=number)
    store.close()


def train_everything_once(path: Path, number: int, outcome: multiprocessing.Queue[str]) -> None:
    store = Store.open(path)
    turns = [sample.turn for sample in store.learning.waiting_samples(100)]
    try:
        store.learning.record_update(*an_update(number, *turns))
        outcome.put("recorded")
    except ConflictError:
        outcome.put("conflict")
    store.close()


def test_a_turn_survives_a_process_that_dies_right_after_writing_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    process = SPAWN.Process(target=write_and_die, args=(path,))
    process.start()
    process.join(DEADLINE)
    assert process.exitcode == 7
    store = Store.open(path)
    assert store.conversations.turn(FULL_TURN.id) == FULL_TURN
    store.close()


def test_processes_that_write_at_once_never_meet_a_locked_database(tmp_path: Path) -> None:
    path, count = tmp_path / "store.sqlite", 40
    names = ["one", "two"]
    writers = [SPAWN.Process(target=write_many, args=(path, name, count)) for name in names]
    for writer in writers:
        writer.start()
    store = Store.open(path)
    while any(writer.is_alive() for writer in writers):
        store.conversations.turns(limit=5)
        store.report("reader", "reading")
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert store.conversations.count_turns() == {TurnState.WAITING_UPDATE: 2 * count}
    for name in names:
        written = store.conversations.turns(session_id=name, limit=1000)
        assert sorted(turn.prompt_ids[0] for turn in written) == list(range(count))
    store.close()


def test_of_two_learners_with_the_same_samples_exactly_one_trains_them(store: Store, tmp_path: Path) -> None:
    for _ in range(5):
        turn = add_turn(store)
        judge(store, turn, follow(store, turn))
    outcome: multiprocessing.Queue[str] = SPAWN.Queue()
    path = tmp_path / "store.sqlite"
    samples = [sample.turn for sample in store.learning.waiting_samples(100)]
    rival = SPAWN.Process(target=train_everything_once, args=(path, 1, outcome))
    rival.start()
    assert outcome.get(timeout=DEADLINE) == "recorded"
    rival.join(DEADLINE)
    with pytest.raises(ConflictError):
        store.learning.record_update(*an_update(2, *samples))
    assert store.conversations.count_turns() == {TurnState.TRAINED: 5}
    assert [version.number for version in store.learning.versions()] == [1, 0]


def test_a_new_store_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    failures: list[Exception] = []

    def open_it(path: Path, barrier: threading.Barrier) -> None:
        barrier.wait(DEADLINE)
        try:
            Store.open(path).close()
        except Exception as error:  # a thread's boundary: pytest would not hear of it
            failures.append(error)

    for round_number in range(8):
        barrier = threading.Barrier(6)
        path = tmp_path / f"{round_number}.sqlite"
        threads = [threading.Thread(target=open_it, args=(path, barrier)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    assert failures == []


def test_a_lock_at_the_first_opening_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.2, other.rollback)
    release.start()
    Store.open(path).close()
    release.join()
    other.close()


def test_a_lock_that_is_never_released_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.store.database.BUSY_SECONDS", 0)
    path = tmp_path / "store.sqlite"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Exception, match="database is locked"):
        Store.open(path)
    other.close()


def test_a_failed_write_leaves_the_store_usable(store: Store) -> None:
    turn = add_turn(store)
    with pytest.raises(Exception, match="UNIQUE"):
        store.conversations.add_turn(turn)
    assert store.conversations.turn(add_turn(store).id) is not None


def test_a_store_can_be_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first = Store.open(path)
    turn = add_turn(first)
    first.close()
    second = Store.open(path)
    assert second.conversations.turn(turn.id) == turn
    second.close()


def test_columns_and_indices_that_are_new_are_added_to_a_store_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    indices = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'turns' ORDER BY name"
    wanted = connection.execute(indices).fetchall()
    for change in (
        "DROP INDEX turns_by_reply",
        "DROP INDEX turns_by_request",
        "ALTER TABLE turns DROP COLUMN reply_hash",
    ):
        connection.execute(change)
    connection.commit()
    store = Store.open(path)
    turn = add_turn(store)
    assert store.conversations.turn(turn.id) == turn
    assert connection.execute(indices).fetchall() == wanted
    store.close()
    connection.close()


def test_a_store_of_another_schema_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE about SET schema_version = 99")
    connection.commit()
    with pytest.raises(SchemaError, match="schema version 99"):
        Store.open(path)
    assert connection.execute("SELECT schema_version FROM about").fetchone() == (99,)
    connection.close()
