"""From finished runs to the table: mean and 95 % interval over seeds, by persona, method and updates.

The interval is Student's t over the seeds' scores; a lone run has Wilson's interval over its questions
instead. Knows only run files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openclaw_rl.evals.judge_bench.agreement import Share
from openclaw_rl.evals.personalise.methods import METHODS
from openclaw_rl.evals.personalise.run_file import Measurement, RunFile

# Student's t at 97.5 %, by degrees of freedom.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
NORMAL_975 = 1.96


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the experiment; every field but the names is a mean over seeds."""

    persona: str
    method: str
    updates: int
    mean: float
    low: float
    high: float
    seeds: int
    style: float
    usefulness: float
    hinted_log_prob: float
    drift: float
    words: float
    turns: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "persona": lambda row: row.persona,
    "method": lambda row: row.method,
    "updates": lambda row: str(row.updates),
    "pleases": lambda row: f"{row.mean:.2f}",
    "95 %": lambda row: f"{row.low:.2f} to {row.high:.2f}",
    "style": lambda row: f"{row.style:.2f}",
    "useful": lambda row: f"{row.usefulness:.2f}",
    "told base": lambda row: f"{row.hinted_log_prob:.2f}",
    "drift": lambda row: f"{row.drift:.3f}",
    "words": lambda row: f"{row.words:.0f}",
    "turns": lambda row: f"{row.turns:.0f}",
    "seconds": lambda row: f"{row.seconds:.0f}",
    "seeds": lambda row: str(row.seeds),
}
"""The table as people read it."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """Until three first replies in a row pleased. A run that needed more than 72 counts as 72."""

    persona: str
    method: str
    mean: float
    seeds: int
    reached: int
    """Runs that got there."""


def rows(runs: Iterable[RunFile]) -> list[Row]:
    """In the order of personas as they come, methods as they are listed, and updates."""
    by_cell: dict[tuple[str, str, int], list[Measurement]] = {}
    for run in runs:
        for one in run.measurements:
            by_cell.setdefault((run.persona, run.method, one.updates), []).append(one)
    order = list(METHODS)
    cells = sorted(by_cell, key=lambda cell: (cell[0], order.index(cell[1]), cell[2]))
    return [_row(*cell, by_cell[cell]) for cell in cells]


def sessions(runs: Iterable[RunFile], most: int) -> list[Sessions]:
    """By persona and method, of the runs in which somebody talked."""
    by_pair: dict[tuple[str, str], list[int | None]] = {}
    for run in runs:
        if run.first_replies:
            by_pair.setdefault((run.persona, run.method), []).append(run.sessions)
    order = list(METHODS)
    return [
        Sessions(
            persona,
            method,
            statistics.fmean(most if one is None else one for one in found),
            len(found),
            sum(one is not None for one in found),
        )
        for (persona, method), found in sorted(
            by_pair.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
        )
    ]


def interval(scores: Sequence[float], questions: int) -> tuple[float, float]:
    """95 %, within [0, 1]. `questions` is what a lone score is a share of."""
    mean = statistics.fmean(scores)
    if len(scores) == 1:
        return Share(round(mean * questions), questions).interval
    freedom = len(scores) - 1
    t = T_975[freedom - 1] if freedom <= len(T_975) else NORMAL_975
    half = t * statistics.stdev(scores) / math.sqrt(len(scores))
    return max(0.0, mean - half), min(1.0, mean + half)


def _row(persona: str, method: str, updates: int, found: Sequence[Measurement]) -> Row:
    scores = [one.score for one in found]
    low, high = interval(scores, len(found[0].pleases))
    mean = {
        name: statistics.fmean(float(getattr(one, name)) for one in found)
        for name in ("style", "hinted_log_prob", "drift", "words", "turns", "seconds")
    }
    return Row(
        persona,
        method,
        updates,
        statistics.fmean(scores),
        low,
        high,
        len(scores),
        usefulness=statistics.fmean(one.useful for one in found),
        **mean,
    )
