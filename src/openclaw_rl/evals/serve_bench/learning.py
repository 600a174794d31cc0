"""The part `learning`: how fast replies come while the learner updates, beside how fast they come alone.

The real server and the real learner on one folder. Replies that got feedback wait there, so that the learner
takes one update after another while streams go on without a pause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, pairwise
from statistics import median

import httpx2

from openclaw_rl.config import ConfigError
from openclaw_rl.evals.own_server import OwnServer, own_learner, own_server, refuse_ended
from openclaw_rl.evals.serve_bench.http_streams import Streamed, client, stream
from openclaw_rl.evals.serve_bench.plan import SERVED, TEMPERATURE, Plan, Steps
from openclaw_rl.evals.serve_bench.summary import Part
from openclaw_rl.evals.update_bench.work import HINT, QUESTION
from openclaw_rl.processes.up import Child
from openclaw_rl.store import Store

ALONE_SECONDS = 5.0
"""How long the streams are watched alone, for each round, before the learner starts and after it ended."""
SWAP_SECONDS = 2.0
"""After an update, within which its version is loaded beside the streams."""
LEARNER_SECONDS = 1800.0

Span = tuple[float, float]
"""From when to when, by `time.time`."""


@dataclass(slots=True)
class Load:
    """Streams that never pause: each asks anew as soon as its reply has ended."""

    http: httpx2.AsyncClient
    streams: int
    tokens: int
    seen: list[Streamed] = field(default_factory=list)
    _stop: bool = False

    async def run(self) -> None:
        """Until `stop`; replies that have begun are read to their end."""
        numbers = count()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.streams):
                group.create_task(self._ask_on(numbers))

    def stop(self) -> None:
        self._stop = True

    async def _ask_on(self, numbers: Iterator[int]) -> None:
        while not self._stop:
            question = [{"role": "user", "content": f"Load {next(numbers)}. {QUESTION}"}]
            self.seen.append(
                await stream(self.http, SERVED, question, max_tokens=self.tokens, temperature=TEMPERATURE)
            )


def learning(plan: Plan, steps: Steps) -> Part:
    """Tokens a second and the longest gap of the streams, alone and while updates run."""
    with (
        steps.part("learning", 3),
        own_server(plan.settings, plan.log) as server,
        closing(Store.open(server.folder / "store.sqlite")) as store,
    ):
        steps.begin("making samples to learn from")
        return asyncio.run(_measure(plan, server, store, steps))


async def _measure(plan: Plan, server: OwnServer, store: Store, steps: Steps) -> Part:
    # Streams are noted by a clock that cannot be set, updates by the wall's.
    ahead = time.time() - time.perf_counter()
    async with client(server.url) as http:
        await _give_samples(http, plan)
        steps.done()
        steps.begin("streams alone")
        load = Load(http, plan.over_http[-1], plan.tokens)
        running = asyncio.create_task(load.run())
        seconds = ALONE_SECONDS * plan.rounds
        alone = [await _watched(seconds, running)]
        steps.done()
        steps.begin("streams while the learner updates")
        updates = await _updates(plan, server, store, running)
        alone.append(await _watched(seconds, running))
        steps.done()
        load.stop()
        await running
    return {
        "streams": plan.over_http[-1],
        "updates": len(updates),
        "update_seconds": round(median(end - start for start, end in updates), 2),
        "alone": figures(load.seen, alone, ahead),
        "learning": figures(load.seen, updates, ahead, SWAP_SECONDS),
    }


async def _give_samples(http: httpx2.AsyncClient, plan: Plan) -> None:
    """Replies with feedback, as many as the updates take, some at a time."""
    needed = plan.learn.batch_size * plan.updates
    at_once = asyncio.Semaphore(plan.over_http[-1])

    async def give(number: int) -> None:
        async with at_once:
            question = [{"role": "user", "content": f"Sample {number}. {QUESTION}"}]
            reply = await stream(http, SERVED, question, max_tokens=2 * plan.tokens, temperature=TEMPERATURE)
            said = {"response_id": reply.id, "score": 1 if number % 2 else -1, "text": HINT}
            answer = await http.post("/v1/feedback", json=said)
            if answer.is_error:
                raise ConfigError(f"feedback was refused: {answer.text[:200]}")

    await asyncio.gather(*(give(number) for number in range(needed)))


async def _watched(seconds: float, running: asyncio.Task[None]) -> Span:
    """So long, with the streams going on. Raises what ended them."""
    started = time.time()
    await asyncio.wait({running}, timeout=seconds)
    if running.done():
        running.result()
    return started, time.time()


async def _updates(plan: Plan, server: OwnServer, store: Store, running: asyncio.Task[None]) -> list[Span]:
    """Have the learner take its updates; from when to when each ran."""
    learner = own_learner(server)
    learner.start()
    try:
        deadline = time.monotonic() + LEARNER_SECONDS
        while store.learning.next_numbers()[0] <= plan.updates:
            refuse_ended(learner)
            if time.monotonic() > deadline:
                raise ConfigError(f"the learner took too long for {plan.updates} updates")
            await _watched(0.2, running)
        await _watched(SWAP_SECONDS, running)
    finally:
        await asyncio.to_thread(_end, learner)
    made = [store.learning.update(number) for number in range(1, plan.updates + 1)]
    return [(update.started_at, update.finished_at) for update in made if update is not None]


def _end(learner: Child) -> None:
    learner.stop()
    learner.wait()


def figures(
    seen: Sequence[Streamed], spans: Sequence[Span], ahead: float, after: float = 0.0
) -> dict[str, float]:
    """Tokens a second within `spans`, and the longest gap between two tokens that touches one.

    `ahead` is what the clock of `spans` is ahead of that of `seen`. Gaps are looked at until `after` seconds
    after a span.
    """
    tokens, longest = 0.0, 0.0
    for reply in seen:
        each = reply.tokens / len(reply.arrivals)
        times = [arrival + ahead for arrival in reply.arrivals]
        tokens += each * sum(any(start <= at <= end for start, end in spans) for at in times)
        gaps = (
            later - earlier
            for earlier, later in pairwise(times)
            if any(start < later and earlier < end + after for start, end in spans)
        )
        longest = max(longest, *gaps, 0.0)
    return {
        "tokens_per_second": round(tokens / sum(end - start for start, end in spans), 2),
        "longest_gap_ms": round(longest * 1000, 1),
    }
