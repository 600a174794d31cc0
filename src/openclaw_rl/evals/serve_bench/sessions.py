"""The part `memory`: what the server occupies after so many sessions of one short reply each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2

from openclaw_rl.evals.own_server import own_server
from openclaw_rl.evals.serve_bench.http_streams import client, stream
from openclaw_rl.evals.serve_bench.plan import SERVED, Plan, Steps
from openclaw_rl.evals.serve_bench.summary import Part
from openclaw_rl.evals.update_bench.memory import resident_bytes

AT_ONCE = 16
REPLY_TOKENS = 2


def memory(plan: Plan, steps: Steps) -> Part:
    """[sessions, resident MB] at each mark."""
    with (
        steps.part("memory", len(plan.sessions)),
        own_server(plan.settings, plan.log) as server,
    ):
        steps.begin(f"{plan.sessions[0]} sessions")
        marks = asyncio.run(_talk(server.url, server.pid, plan.sessions, steps))
    return {"sessions_mb": marks}


async def _talk(url: str, pid: int, marks: Sequence[int], steps: Steps) -> list[tuple[int, float]]:
    found, had = [], 0
    async with client(url) as http:
        for mark in marks:
            steps.begin(f"{mark} sessions")
            await _sessions(http, had, mark)
            had = mark
            found.append((mark, round(resident_bytes(pid) / 2**20, 1)))
            steps.done()
    return found


async def _sessions(http: httpx2.AsyncClient, first: int, end: int) -> None:
    """Hold sessions `first` to `end`, some at a time."""
    for begin in range(first, end, AT_ONCE):
        group = range(begin, min(begin + AT_ONCE, end))
        await asyncio.gather(*(_session(http, number) for number in group))


async def _session(http: httpx2.AsyncClient, number: int) -> None:
    question = [{"role": "user", "content": f"{number} plus {number + 1} is?"}]
    await stream(http, SERVED, question, max_tokens=REPLY_TOKENS)
