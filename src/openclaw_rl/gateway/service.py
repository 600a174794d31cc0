"""The gateway in front of an engine: the parts its routes work with, and the turns that run now.

Knows no route and no request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from openclaw_rl.config import Settings
from openclaw_rl.gateway.auth import Keys
from openclaw_rl.gateway.back_pressure import BackPressure
from openclaw_rl.gateway.completion import SERVER_STOPPED, Plan, RunningTurn
from openclaw_rl.gateway.errors import server_error
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.gateway.publication import Publication
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.engine import Generation, PolicyEngine
from openclaw_rl.store import Store

_IGNORED_NAMES = 100
"""Names of ignored fields that are told apart; clients make them up."""
_LONGEST_NAME = 64


class Service(Gateway):
    def __init__(
        self, settings: Settings, store: Store, engine: PolicyEngine, template: ChatTemplate
    ) -> None:
        super().__init__(settings, store)
        self.engine = engine
        self.template = template
        self._keys = Keys(settings)
        self.publication = Publication(store, engine)
        self.back_pressure = BackPressure(
            seconds=settings.server.busy_seconds, most=settings.engine.max_waiting
        )
        self.ignored: Counter[str] = Counter()
        """What clients sent that this server does nothing with, and how often."""
        self.unread_calls = 0
        """What looked like tool calls in replies and could not be read as such."""
        self.loosened_schemas = 0
        """Schemas of forced calls and of forms not strict of which a part could not be enforced."""
        self._running: set[RunningTurn] = set()
        self._sampled_by_ended = 0

    def tenant_of(self, headers: Mapping[str, str], _: str) -> str:
        return self._keys.tenant_of(headers)

    @property
    def facts(self) -> dict[str, int | str]:
        return {
            "url": self.url,
            "model": self.settings.served_name,
            "version": self.engine.serving_version,
            "active_requests": len(self._running),
            "tokens_generated": self._sampled_by_ended + sum(turn.sampled for turn in self._running),
            "held_requests": self.back_pressure.held,
            "ignored_fields": self.ignored.total(),
            "unread_tool_calls": self.unread_calls,
            "loosened_schemas": self.loosened_schemas,
        }

    @property
    def about(self) -> dict[str, Any]:
        return {
            "model": self.settings.served_name,
            "policy_version": self.engine.serving_version,
            "context_length": self.engine.context_length,
            "tool_dialect": self.template.dialect.name,
            "running_requests": len(self._running),
            "held_requests": self.back_pressure.held,
            "unread_tool_calls": self.unread_calls,
            "loosened_schemas": self.loosened_schemas,
            "ignored_fields": dict(self.ignored.most_common()),
        }

    @property
    def next_update(self) -> dict[str, Any]:
        coming = self.store.progress.next_update(self.settings.learn.batch_size)
        return {**asdict(coming), "missing": coming.missing, "enabled": self.settings.learn.enabled}

    def readiness(self) -> dict[str, Any]:
        if not self.publication.ready:
            raise server_error("No policy version serves yet.", 503)
        return {"policy_version": self.engine.serving_version}

    def count_ignored(self, names: Iterable[str]) -> None:
        for name in names:
            known = name[:_LONGEST_NAME]
            self.ignored[known if known in self.ignored or len(self.ignored) < _IGNORED_NAMES else "…"] += 1

    def run(self, plan: Plan, generation: Generation) -> RunningTurn:
        """Begin to sample a turn."""
        running = RunningTurn(plan, generation, self.template, self.store.conversations)
        self._running.add(running)
        running.task.add_done_callback(lambda _: self._ended(running))
        return running

    def _ended(self, running: RunningTurn) -> None:
        self._running.discard(running)
        self._sampled_by_ended += running.sampled
        self.unread_calls += running.unread_calls

    async def stop(self) -> None:
        running = list(self._running)
        for turn in running:
            turn.hang_up(SERVER_STOPPED)
        await asyncio.gather(*(turn.task for turn in running))
