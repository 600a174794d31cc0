"""Clients that never pause, and the learner's hand that puts one version after another beside them.

Each chat has two turns, so a second turn may find other weights than the first, and the prefix of the first
in the engine's memory. Knows no weights; what came of it is looked at by `verify`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise

import httpx2

from openclaw_rl.config import ConfigError
from openclaw_rl.evals import random_versions
from openclaw_rl.evals.own_server import OwnServer
from openclaw_rl.evals.random_versions import RandomVersions
from openclaw_rl.evals.serve_bench.http_streams import Streamed, client, stream
from openclaw_rl.evals.serve_bench.plan import SERVED, TEMPERATURE, Steps
from openclaw_rl.learn.retention import delete_old
from openclaw_rl.model import Message
from openclaw_rl.store import Store

QUESTION = "my bicycle clicks when I ride uphill. Why?"
FOLLOW_UP = "And what else could it be?"
KEPT = 8
"""Newest versions whose files stay, as `learn.keep_versions` has it."""
SWAP_SECONDS = 120.0


@dataclass(slots=True)
class Seen:
    """What the clients saw."""

    chats: int = 0
    """That came to their end without an error."""
    errors: list[str] = field(default_factory=list)
    replies: list[Streamed] = field(default_factory=list)
    served_at: list[float] = field(default_factory=list)
    """When each version was first seen to serve, by `time.perf_counter`."""

    @property
    def longest_gap_seconds(self) -> float:
        """Between two tokens of one reply."""
        gaps = (b - a for reply in self.replies for a, b in pairwise(reply.arrivals))
        return max(gaps, default=0.0)

    @property
    def across_a_swap(self) -> int:
        """Replies that were being made when a version began to serve."""
        return sum(
            any(reply.arrivals[0] < at < reply.arrivals[-1] for at in self.served_at)
            for reply in self.replies
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """At least `chats` chats by `clients` at a time, and `swaps` versions spread over them."""

    server: OwnServer
    store: Store
    versions: RandomVersions
    chats: int
    swaps: int
    clients: int
    tokens: int

    async def run(self, steps: Steps) -> Seen:
        """Until all chats are held and all versions have served."""
        seen, ended, numbers = Seen(), asyncio.Event(), count()
        async with client(self.server.url) as http, asyncio.TaskGroup() as group:
            talking = [
                group.create_task(self._talk_on(http, numbers, seen, ended, steps))
                for _ in range(self.clients)
            ]
            await self._swap_all(http, seen, steps)
            while seen.chats + len(seen.errors) < self.chats:
                await asyncio.wait(talking, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            ended.set()
        return seen

    async def _talk_on(
        self,
        http: httpx2.AsyncClient,
        numbers: Iterator[int],
        seen: Seen,
        ended: asyncio.Event,
        steps: Steps,
    ) -> None:
        while not ended.is_set():
            try:
                await self._chat(http, next(numbers), seen)
                seen.chats += 1
            except (ConfigError, httpx2.HTTPError) as error:
                seen.errors.append(str(error) or type(error).__name__)
            steps.done()

    async def _chat(self, http: httpx2.AsyncClient, number: int, seen: Seen) -> None:
        messages: list[Message] = [{"role": "user", "content": f"Case {number}: {QUESTION}"}]
        for _ in range(2):
            reply = await stream(http, SERVED, messages, max_tokens=self.tokens, temperature=TEMPERATURE)
            seen.replies.append(reply)
            messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": FOLLOW_UP}]

    async def _swap_all(self, http: httpx2.AsyncClient, seen: Seen, steps: Steps) -> None:
        for number in range(1, self.swaps + 1):
            due = number * self.chats / (self.swaps + 1)
            while seen.chats + len(seen.errors) < due:
                await asyncio.sleep(0.02)
            steps.begin(f"version {number} goes live")
            await asyncio.to_thread(self._put, number)
            await _until_it_serves(http, number)
            seen.served_at.append(time.perf_counter())

    def _put(self, number: int) -> None:
        """A version on disk and in the store, and old ones' files gone: as the learner does."""
        versions = self.server.folder / "versions"
        random_versions.record(self.store, self.versions.write(number, versions, SERVED))
        delete_old(self.store, versions, KEPT)


async def _until_it_serves(http: httpx2.AsyncClient, number: int) -> None:
    deadline = time.monotonic() + SWAP_SECONDS
    while time.monotonic() < deadline:
        ready = await http.get("/readyz")
        if ready.is_success and ready.json()["policy_version"] == number:
            return
        await asyncio.sleep(0.02)
    raise ConfigError(f"version {number} did not serve within {SWAP_SECONDS:.0f} s")
