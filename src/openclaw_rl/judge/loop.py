"""Loop 3: takes turns that wait for a judge from the store, and writes their judgements.

Works in rounds of a few turns, judged concurrently and written one by one as they are done. While nobody
answers, turns stay waiting and the loop backs off; only a turn that the judge keeps failing on while it
answers others is given up as unjudged. Knows no kind of judge and no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from openclaw_rl.judge import verdict
from openclaw_rl.judge.judge import Judge, judge_turn
from openclaw_rl.model import Judgement, NextState, Turn, Vote
from openclaw_rl.store import Store

LONGEST_BACKOFF_SECONDS = 30.0
WINDOW = 4
"""Rounds' worth of turns looked at, so that turns which nobody can judge do not block those behind."""

_log = logging.getLogger(__name__)


async def run(
    store: Store, judge: Judge, stop: asyncio.Event, *, interval: float = 0.2, concurrency: int = 4
) -> None:
    """Judge until `stop` is set; turns being judged then stay waiting. The caller closes the judge.

    `interval` is the wait in seconds when nothing waits, and the first back-off when nobody answers.
    A failing judge never ends the loop. Errors of the store do: without it there is nothing to do.
    """
    loop = _Loop(store, judge, concurrency)
    rounds = asyncio.create_task(loop.rounds(interval))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((rounds, stopping), return_when=asyncio.FIRST_COMPLETED)
        if rounds.done():
            rounds.result()  # Raises what ended it.
    finally:
        for task in (rounds, stopping):
            task.cancel()
        await asyncio.gather(rounds, stopping, return_exceptions=True)
    await loop.report("stopped")


class _Loop:
    def __init__(self, store: Store, judge: Judge, concurrency: int) -> None:
        self._store = store
        self._judge = judge
        self._concurrency = concurrency
        self._counts = Counter[str](judged=0, unjudged=0, hints=0, votes_unread=0, votes_unanswered=0)
        self._answered = 0
        # For each turn that the judge failed on: how often, and how many it had answered at the first time.
        self._failures = Counter[str]()
        self._answered_before: dict[str, int] = {}
        self._last_report: tuple[str, dict[str, Any]] | None = None

    async def rounds(self, interval: float) -> None:
        backoff = interval
        while True:
            waiting = await self._next_turns()
            if not waiting:
                await self.report("waiting")
                await asyncio.sleep(interval)
                continue
            reason = await self._round(waiting)
            if reason is None:
                backoff = interval
                continue
            await self.report("failing", reason=reason)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def _next_turns(self) -> list[tuple[Turn, NextState]]:
        """The turns of the next round: those failed on least often first, then the longest waiting."""
        limit = WINDOW * self._concurrency
        found = await asyncio.to_thread(self._store.learning.turns_to_judge, limit)
        found.sort(key=lambda pair: self._failures[pair[0].id])
        return found[: self._concurrency]

    async def _round(self, pairs: list[tuple[Turn, NextState]]) -> str | None:
        """Judge the pairs concurrently. Returns why nobody answered, or None if someone did."""
        if self._last_report is None or self._last_report[0] != "failing":
            await self.report("judging")
        reasons = await _together([self._judge_one(turn, next_state) for turn, next_state in pairs])
        return None if None in reasons else reasons[0]

    async def _judge_one(self, turn: Turn, next_state: NextState) -> str | None:
        """Judge a pair and write it. Returns why no vote came, in which case the turn may stay waiting."""
        judgement = await self._ask(turn, next_state)
        reason = verdict.no_answer_reason(judgement.votes)
        if reason is None:
            self._answered += 1
        elif not self._should_give_up(turn.id):
            return reason
        await self._write(judgement)
        if reason is None:
            await self.report("judging")
        return reason

    async def _ask(self, turn: Turn, next_state: NextState) -> Judgement:
        try:
            return await judge_turn(self._judge, turn, next_state)
        except Exception as error:  # noqa: BLE001 - a judge is a plug-in; its faults must not end the loop.
            # No traceback and no message: both may hold conversation text.
            _log.error("the judge raised %s on turn %s", type(error).__name__, turn.id)
            return await judge_turn(_Broken(self._judge.name, type(error).__name__), turn, next_state)

    def _should_give_up(self, turn_id: str) -> bool:
        """Whether the judge has answered others since it first failed on this turn."""
        self._failures[turn_id] += 1
        return self._answered > self._answered_before.setdefault(turn_id, self._answered)

    async def _write(self, judgement: Judgement) -> None:
        await asyncio.to_thread(self._store.learning.add_judgement, judgement)
        self._failures.pop(judgement.turn_id, None)
        self._answered_before.pop(judgement.turn_id, None)
        self._counts["unjudged" if judgement.score is None else "judged"] += 1
        self._counts["hints"] += judgement.hint is not None
        for vote in judgement.votes:
            if vote.error is not None:
                came = verdict.no_answer_reason((vote,)) is None
                self._counts["votes_unread" if came else "votes_unanswered"] += 1

    async def report(self, phase: str, **detail: Any) -> None:
        """Tell the store, when the phase or a number changed."""
        detail = {"judge": self._judge.name, **self._counts, **detail}
        if (phase, detail) != self._last_report:
            self._last_report = (phase, detail)
            await asyncio.to_thread(self._store.report, "judge", phase, **detail)


class _Broken:
    """Stands in for a judge that raised: its one vote came and cannot be read, so it is final."""

    def __init__(self, name: str, fault: str) -> None:
        self.name = name
        self._fault = fault

    async def judge(self, turn: Turn, next_state: NextState) -> tuple[Vote, ...]:
        return (verdict.unread("evaluative", "", f"the judge raised {self._fault}"),)

    async def close(self) -> None:
        """Nothing is held open."""


async def _together(work: list[Coroutine[Any, Any, str | None]]) -> list[str | None]:
    """Like gather, but when one raises the others are cancelled and waited for."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]
