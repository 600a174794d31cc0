"""The real judging loop, run until nothing waits for it."""

from __future__ import annotations

import asyncio

from openclaw_rl.judge import loop
from openclaw_rl.judge.judge import Judge
from openclaw_rl.store import Store


def judge_all(store: Store, judge: Judge) -> None:
    async def until_done() -> None:
        stop = asyncio.Event()
        judging = asyncio.create_task(loop.run(store, judge, stop, interval=0.01))
        while store.learning.turns_to_judge(1):
            await asyncio.sleep(0.01)
        stop.set()
        await judging
        await judge.close()

    asyncio.run(until_done())
