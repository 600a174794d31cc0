"""Agreement of judgements with labels: shares with their intervals, confusion, and where a judge fails.

Pure but for `measure`, which asks a judge about each case. A turn that the judge could not judge agrees
with no label.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_rl.evals.judge_bench.cases import Case
from openclaw_rl.judge.judge import Judge, judge_turn
from openclaw_rl.model import Score

AT_ONCE = 4
"""Cases in flight, so that a model judge is kept busy."""

_Z = 1.959964
"""The normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge made of one case; `score` is None when it was left unjudged."""

    case: Case
    score: Score | None
    hinted: bool
    error: str = ""
    """Why it was left unjudged."""

    @property
    def agrees(self) -> bool:
        return self.score == self.case.score


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `total`, with Wilson's 95 % interval; of nothing, all three shares are 0."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        return self.hits / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson (1927), without continuity correction."""
        if not self.total:
            return 0.0, 0.0
        n, p, z2 = self.total, self.value, _Z * _Z
        middle = (p + z2 / (2 * n)) / (1 + z2 / n)
        reach = _Z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
        return max(0.0, middle - reach), min(1.0, middle + reach)


async def measure(judge: Judge, cases: Sequence[Case], done: Callable[[], None]) -> list[Opinion]:
    """Ask `judge` about each case; `done` is called after each."""
    free = asyncio.Semaphore(AT_ONCE)

    async def ask(case: Case) -> Opinion:
        async with free:
            judgement = await judge_turn(judge, case.turn, case.next_state)
            done()
            errors = [vote.error for vote in judgement.votes if vote.question == "evaluative" and vote.error]
            error = errors[0] if errors and judgement.score is None else ""
            return Opinion(case, judgement.score, judgement.hint is not None, error)

    return list(await asyncio.gather(*(ask(case) for case in cases)))


def agreement(opinions: Iterable[Opinion]) -> Share:
    agreed = [opinion.agrees for opinion in opinions]
    return Share(sum(agreed), len(agreed))


def by_kind(opinions: Iterable[Opinion]) -> dict[str, Share]:
    """Agreement for each kind of next state, in the order in which kinds first occur."""
    kinds: dict[str, list[Opinion]] = {}
    for opinion in opinions:
        kinds.setdefault(opinion.case.kind, []).append(opinion)
    return {kind: agreement(of_kind) for kind, of_kind in kinds.items()}


def confusion(opinions: Iterable[Opinion]) -> dict[str, dict[str, int]]:
    """For each label, how often the judge said what; "none" is a turn it could not judge."""
    counts: Counter[tuple[Score | None, Score | None]] = Counter(
        (opinion.case.score, opinion.score) for opinion in opinions
    )
    said: tuple[tuple[Score | None, str], ...] = ((1, "+1"), (0, "0"), (-1, "-1"), (None, "none"))
    return {name: {other: counts[label, score] for score, other in said} for label, name in said[:3]}


def unjudged_because(opinions: Iterable[Opinion]) -> dict[str, int]:
    """How often each reason left a case unjudged, the most frequent first."""
    return dict(Counter(opinion.error for opinion in opinions if opinion.score is None).most_common())


def hint_precision(opinions: Iterable[Opinion]) -> Share:
    """Of the hints that the judge gave, those where the label has one."""
    hinted = [opinion.case.hint for opinion in opinions if opinion.hinted]
    return Share(sum(hinted), len(hinted))


def hint_recall(opinions: Iterable[Opinion]) -> Share:
    """Of the cases whose label has a hint, those where the judge gave one."""
    wanted = [opinion.hinted for opinion in opinions if opinion.case.hint]
    return Share(sum(wanted), len(wanted))


def to_json(share: Share) -> dict[str, Any]:
    low, high = share.interval
    return {
        "accuracy": round(share.value, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "cases": share.total,
    }
