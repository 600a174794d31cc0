"""The gateway in front of another server: who asks, what passes, and what it says of itself.

It has no policy and no engine. Knows no route and no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from openclaw_rl.config import Settings
from openclaw_rl.gateway.completion import SERVER_STOPPED
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.gateway.upstream.callers import Callers
from openclaw_rl.gateway.upstream.connection import Upstream
from openclaw_rl.gateway.upstream.relay import Traffic
from openclaw_rl.store import Store


class Recorder(Gateway):
    def __init__(self, settings: Settings, store: Store) -> None:
        """Raises ConfigError for an `upstream.url` that cannot be passed on to."""
        super().__init__(settings, store)
        self.upstream = Upstream(settings)
        self.traffic = Traffic()
        self._callers = Callers(settings)

    def tenant_of(self, headers: Mapping[str, str], query: str) -> str:
        return self._callers.tenant_of(headers, query)

    @property
    def facts(self) -> dict[str, int | str]:
        return {
            "url": self.url,
            "upstream": self.upstream.url,
            "active_requests": len(self.traffic.running),
            "passed_requests": self.traffic.passed,
            "failed_requests": self.traffic.failed,
            "not_recorded": self.traffic.not_recorded,
        }

    @property
    def about(self) -> dict[str, Any]:
        return {
            "record_only": True,
            "upstream": self.upstream.url,
            "running_requests": len(self.traffic.running),
            "passed_requests": self.traffic.passed,
            "failed_requests": self.traffic.failed,
            "not_recorded": self.traffic.not_recorded,
        }

    @property
    def next_update(self) -> None:
        return None

    def readiness(self) -> dict[str, Any]:
        return {"record_only": True, "upstream": self.upstream.url}

    async def stop(self) -> None:
        running = list(self.traffic.running)
        for relay in running:
            relay.hang_up(SERVER_STOPPED)
        await asyncio.gather(*(relay.ended.wait() for relay in running))
        await self.upstream.close()
