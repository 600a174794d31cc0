"""Where requests wait when the engine is full: held open, in order, for a bounded time.

A client that is told "busy" at once tries again in ways of its own; some rewrite the user's message when
they do. So a request waits here first, whatever its kind. Knows no request and no engine but its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from openclaw_rl.policy.engine import EngineBusyError

POLL_SECONDS = 0.05
Admitted = TypeVar("Admitted")


class BackPressure:
    def __init__(self, *, seconds: float, most: int) -> None:
        """Hold at most `most` requests, each for at most `seconds`."""
        self._seconds = seconds
        self._most = most
        self._first_in_line = asyncio.Lock()
        self.held = 0
        """Requests that wait now."""

    async def admit(
        self, enter: Callable[[], Awaitable[Admitted]], left: Callable[[], Awaitable[bool]]
    ) -> Admitted | None:
        """What `enter` returns once the engine has room; None when `left` says that the client has gone.

        Raises EngineBusyError after `seconds` without room, or at once when too many wait already.
        """
        if not self.held:
            try:
                return await enter()
            except EngineBusyError:
                pass
        if self.held >= self._most:
            raise EngineBusyError(f"the engine is full, and {self.held} requests wait for it already")
        self.held += 1
        try:
            async with asyncio.timeout(self._seconds), self._first_in_line:
                return await self._keep_trying(enter, left)
        except TimeoutError:
            raise EngineBusyError(
                f"the engine was full for {self._seconds:g} seconds; try again later"
            ) from None
        finally:
            self.held -= 1

    async def _keep_trying(
        self, enter: Callable[[], Awaitable[Admitted]], left: Callable[[], Awaitable[bool]]
    ) -> Admitted | None:
        while not await left():
            try:
                return await enter()
            except EngineBusyError:
                await asyncio.sleep(POLL_SECONDS)
        return None
