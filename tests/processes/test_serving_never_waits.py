"""Clients that talk through several updates see no error, no mixture of versions and no long silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise

import httpx2
from conversations import Streamed, converse
from running_processes import START_SECONDS, House, eventually

from openclaw_rl.model import Update

CLIENTS = 4
UPDATES = 3


def test_no_client_notices_an_update(house: House, record_property: Callable[[str, object], None]) -> None:
    house.start("serve")
    house.start("learn", "learn.batch_size=4")
    house.wait_until_ready()
    house.wait_for_learner()
    seen = _talk_until(house, lambda: _last_version(house) >= UPDATES)

    assert {reply.status for reply in seen} == {200}
    assert all(reply.finished for reply in seen)
    # Between two requests a busy machine may put two versions live, so not every one need be seen.
    versions = {int(reply.version) for reply in seen}
    assert 0 in versions
    assert len(versions) > 2
    assert max(versions) >= UPDATES
    for reply in seen:
        assert reply.fingerprints == {f"policy-{reply.version}"}
        turn = house.store.conversations.turn(reply.turn_id)
        assert turn is not None
        assert str(turn.policy_version) == reply.version
        assert turn.reply["content"] == reply.text

    updates = [update for n in range(1, UPDATES + 1) if (update := house.store.learning.update(n))]
    during, outside = _longest_gaps(seen, updates)
    record_property("longest_gap_during_updates_seconds", during)
    record_property("longest_gap_outside_updates_seconds", outside)
    print(f"longest gap between tokens: {during:.3f} s during updates, {outside:.3f} s outside")


def _last_version(house: House) -> int:
    """The newest that some client has been answered by."""
    report = house.store.reports()["server"]
    return int(report.detail.get("version", 0))


def _talk_until(house: House, enough: Callable[[], bool]) -> list[Streamed]:
    """All replies that the clients saw, the last of them after there was enough."""
    stop = threading.Event()
    numbers = count(1)

    def talk() -> list[Streamed]:
        seen = []
        with httpx2.Client(base_url=house.url, timeout=20) as http:
            while not stop.is_set():
                seen += converse(http, next(numbers), max_tokens=60)
            seen += converse(http, next(numbers), max_tokens=60)
        return seen

    with ThreadPoolExecutor(CLIENTS) as pool:
        talking = [pool.submit(talk) for _ in range(CLIENTS)]
        try:
            eventually(enough, START_SECONDS)
        finally:
            stop.set()
        return [reply for client in talking for reply in client.result()]


def _longest_gaps(seen: list[Streamed], updates: list[Update]) -> tuple[float, float]:
    """Seconds between two tokens of one stream: the longest that touch an update, and of all others."""
    during, outside = [0.0], [0.0]
    for reply in seen:
        for before, after in pairwise(reply.times):
            touched = any(update.started_at < after and before < update.finished_at for update in updates)
            (during if touched else outside).append(after - before)
    return max(during), max(outside)
