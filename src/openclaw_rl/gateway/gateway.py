"""What routes share, whoever makes the replies: the store, the sessions, and who may ask.

A gateway is either in front of an engine (`service`) or in front of another server (`upstream`). Made once
for an app. Knows no route and no request.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from openclaw_rl.config import Settings
from openclaw_rl.gateway.sessions import Sessions
from openclaw_rl.store import Store


class Gateway(ABC):
    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.sessions = Sessions(store.conversations, store.continuations)
        self.started_at = time.time()

    @property
    def body_limit(self) -> int:
        """In bytes."""
        return int(self.settings.server.max_body_mb * 1024 * 1024)

    @property
    def url(self) -> str:
        return self.settings.server.url

    @abstractmethod
    def tenant_of(self, headers: Mapping[str, str], query: str) -> str:
        """The tenant that a request stands for, by its headers and its raw query.

        Raises ApiError when it may not ask.
        """

    @property
    @abstractmethod
    def facts(self) -> dict[str, int | str]:
        """What the server says of itself in the store."""

    @property
    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What makes the replies and how it does, for the status route."""

    @property
    @abstractmethod
    def next_update(self) -> dict[str, Any] | None:
        """What the next update waits for; None where nothing trains. Blocks on the store."""

    @abstractmethod
    def readiness(self) -> dict[str, Any]:
        """What says that requests can be answered; raises ApiError 503 while they cannot."""

    @abstractmethod
    async def stop(self) -> None:
        """End every running turn; returns once each is recorded."""
