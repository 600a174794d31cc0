"""Processes are killed at the worst moments; every reply that was seen is there, and trained once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from conversations import Streamed, converse, question, stream, user
from running_processes import START_SECONDS, House, eventually

from openclaw_rl.model import TurnState, VersionState
from openclaw_rl.store import Store

BATCH = 4
SLOW_UPDATES = ("learn.batch_size=4", "learn.tokens_per_pass=64", "learn.kl_weight=0.1")
MOST_KILLS = 6


class Talk:
    """Conversations that go on until told to stop, whatever happens to the server."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._talk)
        self.seen: list[Streamed] = []

    def _talk(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            replies = converse(self._house.http, number, max_tokens=40)
            self.seen += replies
            if not replies[-1].finished:
                time.sleep(0.1)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def test_kills_lose_no_turn_and_train_none_twice(house: House) -> None:
    server = house.start("serve")
    learner = house.start("learn", *SLOW_UPDATES)
    house.wait_until_ready()
    house.wait_for_learner()
    talk = Talk(house)
    with talk.going_on():
        cut = _kill_learner_in_an_update(house, learner)
        before = len(talk.seen)
        eventually(lambda: len(talk.seen) >= before + 3, START_SECONDS)
        _kill_server_while_it_streams(house, server)
        learner = house.start("learn", *SLOW_UPDATES)
        house.start("serve")
        house.wait_until_ready()
        before = len(talk.seen)
        eventually(lambda: len(talk.seen) >= before + 2 * BATCH, START_SECONDS)
        eventually(lambda: _updates(house.store) > cut, START_SECONDS)
    learner.send_signal(signal.SIGTERM)
    assert learner.wait(START_SECONDS) == 0

    assert any(not reply.finished for reply in talk.seen)
    _assert_every_seen_reply_is_stored(house.store, talk.seen)
    _assert_no_turn_was_trained_twice(house.store)
    _assert_versions_form_one_chain(house.store)
    _assert_the_commands_tell_of_it(house)


def _kill_learner_in_an_update(house: House, learner: subprocess.Popen[str]) -> int:
    """Kill it as soon as it says that it updates, until one update was truly cut; returns which."""
    for _ in range(MOST_KILLS):
        pid = learner.pid

        def updating(pid: int = pid) -> int:
            report = house.store.reports()["learner"]
            return report.detail["update"] if (report.pid, report.phase) == (pid, "updating") else 0

        update = eventually(updating, START_SECONDS, pause=0.001)
        os.kill(pid, signal.SIGKILL)
        learner.wait()
        if house.store.learning.update(update) is None:
            return update
        learner = house.start("learn", *SLOW_UPDATES)
    raise AssertionError("no kill came in the middle of an update")


def _kill_server_while_it_streams(house: House, server: subprocess.Popen[str]) -> None:
    long = threading.Thread(target=stream, args=(house.http, [user(question(0))], 400))
    long.start()
    eventually(lambda: house.store.reports()["server"].detail["active_requests"] > 0)
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    long.join()


def _updates(store: Store) -> int:
    last = store.learning.last_update()
    return last.id if last else 0


def _assert_every_seen_reply_is_stored(store: Store, seen: list[Streamed]) -> None:
    whole = [reply for reply in seen if reply.finished]
    assert len(whole) >= 3 * BATCH
    assert len({reply.turn_id for reply in whole}) == len(whole)
    for reply in whole:
        turn = store.conversations.turn(reply.turn_id)
        assert turn is not None
        assert turn.reply["content"] == reply.text
        assert turn.state is not TurnState.ABORTED
        assert str(turn.policy_version) == reply.version


def _assert_no_turn_was_trained_twice(store: Store) -> None:
    updates = [store.learning.update(number) for number in range(1, _updates(store) + 1)]
    counted = Counter(turn_id for update in updates if update for turn_id in update.turn_ids)
    assert None not in updates
    assert set(counted.values()) == {1}
    assert sum(counted.values()) == BATCH * len(updates)
    assert sum(counted.values()) == store.conversations.count_turns()[TurnState.TRAINED]
    for turn_id in counted:
        assert any(state.source == "conversation" for state in store.conversations.next_states(turn_id))


def _assert_versions_form_one_chain(store: Store) -> None:
    versions = sorted(store.learning.versions(), key=lambda version: version.number)
    assert [version.number for version in versions] == list(range(_updates(store) + 1))
    assert [version.parent for version in versions] == [None, *range(_updates(store))]
    assert [version.update_id for version in versions] == [None, *range(1, _updates(store) + 1)]
    eventually(lambda: store.learning.versions()[0].state is VersionState.SERVING)
    # One that was overtaken while no server ran was never live.
    older = {version.state for version in store.learning.versions()[1:]}
    assert older <= {VersionState.RETIRED, VersionState.CANDIDATE}


def _assert_the_commands_tell_of_it(house: House) -> None:
    trained = house.count(TurnState.TRAINED)
    said = house.run("status", "--data-dir", str(house.data))
    assert said.returncode == 0, said.stderr
    assert f"{trained} trained" in {" ".join(line.split()) for line in said.stdout.splitlines()}
    assert f"serving: version {_updates(house.store)}" in said.stdout
    for process in ("server", "learner", "judge"):
        assert process in said.stdout
