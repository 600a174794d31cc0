"""What the server does between requests: publish versions, close idle sessions, say how it is.

A step that fails is logged and tried again later; none can end the server. Knows no request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from anyio import to_thread

from openclaw_rl.gateway.errors import log_failure
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.gateway.publication import Publication

PUBLISH_SECONDS = 0.25
IDLE_SECONDS = 30.0
REPORT_SECONDS = 1.0
RETRY_SECONDS = 2.0
"""At least so long until a failed step is tried again, so that a lasting fault does not fill the log."""

REPORT_NAME = "server"


class Background:
    """The steps, each repeated in a task of its own from `start` to `stop`."""

    def __init__(self, gateway: Gateway, publication: Publication | None = None) -> None:
        """Without a publication no version is looked for."""
        self._gateway = gateway
        self._publication = publication
        self._tasks: list[asyncio.Task[None]] = []
        self._reported: dict[str, int | str] = {}

    async def start(self) -> None:
        """Publish the newest version, then go on with all steps."""
        steps = [
            ("closing idle sessions", self._close_idle, IDLE_SECONDS),
            ("the server's report", self._report, REPORT_SECONDS),
        ]
        if self._publication is not None:
            publish = self._publication.bring_up_to_date
            await self._try("publication", publish)
            steps.append(("publication", publish, PUBLISH_SECONDS))
        self._tasks = [asyncio.create_task(self._repeat(*step)) for step in steps]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._try("the server's report", self._report_stop)

    async def _repeat(self, what: str, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            succeeded = await self._try(what, step)
            await asyncio.sleep(seconds if succeeded else max(seconds, RETRY_SECONDS))

    async def _try(self, what: str, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - a task's boundary: the step is tried again
            log_failure(what, error)
            return False
        return True

    async def _close_idle(self) -> None:
        idle_since = time.time() - self._gateway.settings.sessions.idle_minutes * 60
        await to_thread.run_sync(self._gateway.store.conversations.close_idle_sessions, idle_since)

    async def _report(self) -> None:
        facts = self._gateway.facts
        if facts != self._reported:
            await to_thread.run_sync(lambda: self._gateway.store.report(REPORT_NAME, "serving", **facts))
            self._reported = facts

    async def _report_stop(self) -> None:
        facts = self._gateway.facts
        await to_thread.run_sync(lambda: self._gateway.store.report(REPORT_NAME, "stopped", **facts))
