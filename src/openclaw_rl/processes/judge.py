"""The judge, in the learner's process or in one of its own where nothing trains.

Needs no PyTorch. Meets the server in the store, and runs at a lower CPU priority than it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.judge.judge import make_judge
from openclaw_rl.judge.loop import run as run_judge
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

NICENESS = 10


def judge(settings: Settings) -> None:
    """Judge until SIGINT or SIGTERM, and train nothing. Raises ConfigError or AlreadyRunningError."""
    refuse_self(settings)
    stop = stop_on_signals()
    # Under the learner's name: either of them judges the folder's turns.
    with only_one(settings.home, "learner"):
        store = Store.open(settings.database)
        try:
            judge_until(settings, store, stop)
        finally:
            store.close()


def refuse_self(settings: Settings) -> None:
    """Raise ConfigError when the policy shall judge where no policy is served."""
    if settings.upstream.url and settings.judge.kind == "self":
        raise ConfigError(
            "judge.kind = 'self' asks the policy, and none is served in front of an upstream; "
            "use rules, or the base URL of a server"
        )


def stop_on_signals() -> threading.Event:
    """Set by SIGINT or SIGTERM; the process steps back behind the server."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    os.nice(NICENESS)
    return stop


def judge_until(settings: Settings, store: Store, stop: threading.Event) -> None:
    """Run the judge's loop; if it ends by an error, so does this process, to be started anew."""

    async def judge_until_stopped() -> None:
        judge = make_judge(settings, _server_url(settings, store))
        stopping = asyncio.Event()
        watcher = asyncio.create_task(_set_when(stop, stopping))
        try:
            await run_judge(store, judge, stopping, concurrency=settings.judge.concurrency)
        finally:
            watcher.cancel()
            await judge.close()

    try:
        asyncio.run(judge_until_stopped())
    finally:
        stop.set()


async def _set_when(stop: threading.Event, stopping: asyncio.Event) -> None:
    await asyncio.to_thread(stop.wait)
    stopping.set()


def _server_url(settings: Settings, store: Store) -> str:
    """Where our own server listens: as it last said itself, since its port may have been chosen freely."""
    report = store.reports().get("server")
    if report is not None and "url" in report.detail:
        return str(report.detail["url"])
    return f"http://{settings.server.host}:{settings.server.port}"
