"""The real server and learner beside a simulated user: kept going, and found through the store."""

from __future__ import annotations

import asyncio
import time

from openclaw_rl.processes.up import Supervisor
from openclaw_rl.store import Store

START_SECONDS = 600.0
"""Loading a model, on a busy machine."""


async def tend(supervisor: Supervisor) -> None:
    """Until cancelled. Raises ChildRefusedError when a process cannot start."""
    while True:
        supervisor.tend()
        await asyncio.sleep(0.2)


async def server_url(store: Store, begun: float) -> str:
    """Where the server listens that came up after `begun` (seconds since the epoch). Raises TimeoutError."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        report = store.reports().get("server")
        if report is not None and report.phase == "serving" and report.updated_at > begun:
            return str(report.detail["url"])
        await asyncio.sleep(0.2)
    raise TimeoutError("the server did not come up")


def first(error: BaseException) -> BaseException:
    """The error that began it, out of the groups that tasks wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def set_flags(chosen: dict[str, object]) -> list[str]:
    """Settings as flags of the processes."""
    return [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
