"""`openclaw-rl bench judge`: measures judges on the labelled cases, shows them, and writes the numbers.

The figures shown are of the held-out half; `half` set to "development" leaves that half unread, for whoever
changes a judge. Knows no judge's insides; the arithmetic is `agreement`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from openclaw_rl.config import Settings
from openclaw_rl.evals import provenance
from openclaw_rl.evals.judge_bench import agreement
from openclaw_rl.evals.judge_bench.agreement import Opinion, Share
from openclaw_rl.evals.judge_bench.cases import Case, Half, load, spread
from openclaw_rl.evals.own_server import own_server
from openclaw_rl.evals.results import write
from openclaw_rl.judge.judge import make_judge


@dataclass(frozen=True, slots=True)
class Measured:
    """All that one judge said."""

    name: str
    opinions: dict[Half, list[Opinion]]
    votes: int
    """For each question."""
    seconds: float

    @property
    def shown(self) -> list[Opinion]:
        """Of the held-out half, or of the only half that was asked."""
        return self.opinions.get("held_out") or self.opinions["development"]

    def to_json(self) -> dict[str, Any]:
        shown = agreement.to_json(agreement.agreement(self.shown))
        return {
            "accuracy": shown["accuracy"],
            "low": shown["low"],
            "high": shown["high"],
            **{half: agreement.to_json(agreement.agreement(of)) for half, of in self.opinions.items()},
            "confusion": agreement.confusion(self.shown),
            "by_kind": {k: agreement.to_json(v) for k, v in agreement.by_kind(self.shown).items()},
            "hint_precision": round(agreement.hint_precision(self.shown).value, 4),
            "hint_recall": round(agreement.hint_recall(self.shown).value, 4),
            "unjudged": agreement.unjudged_because(self.shown),
            "votes": self.votes,
            "seconds": round(self.seconds, 2),
        }


def run(judges: Sequence[Settings], halves: Sequence[Half], most: int | None, json_file: Path | None) -> None:
    """Measure the judge of each settings on `most` cases of each half; print what came out."""
    commit = provenance.commit()
    console = Console() if sys.stdout.isatty() else Console(width=160)
    cases = {half: spread(load(half), most) for half in halves}
    measured = [_measure(settings, cases, console) for settings in judges]
    console.print(_summary(measured), _kinds(measured))
    for one in measured:
        for reason, count in agreement.unjudged_because(one.shown).items():
            console.print(f"{one.name} left {count} unjudged: {reason}", markup=False)
    if json_file is not None:
        results = {
            "judges": {one.name: one.to_json() for one in measured},
            "cases": {half: len(of) for half, of in cases.items()},
            "commit": commit,
        }
        write(json_file, results)
        console.print(f"written to {json_file}", markup=False)


def _measure(settings: Settings, cases: dict[Half, list[Case]], console: Console) -> Measured:
    name = settings.judge.kind
    with ExitStack() as serving:
        url = ""
        if name == "self":
            # Nothing trains beside it, so the weights stay those that were loaded.
            url = serving.enter_context(own_server({"model.name": settings.model.name})).url
        started = time.perf_counter()
        opinions = asyncio.run(_ask(settings, url, cases, console))
        votes = 1 if name == "rules" else settings.judge.votes
        return Measured(name, opinions, votes, time.perf_counter() - started)


async def _ask(
    settings: Settings, url: str, cases: dict[Half, list[Case]], console: Console
) -> dict[Half, list[Opinion]]:
    judge = make_judge(settings, url)
    try:
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(settings.judge.kind, total=sum(map(len, cases.values())))
            return {
                half: await agreement.measure(judge, of, lambda: progress.advance(task))
                for half, of in cases.items()
            }
    finally:
        await judge.close()


def _summary(measured: Sequence[Measured]) -> Table:
    table = Table(
        "judge",
        "agrees",
        "95 %",
        "development",
        "wrong sign",
        "unjudged",
        "hint precision",
        "hint recall",
        "ms each",
    )
    for one in measured:
        shown = agreement.agreement(one.shown)
        low, high = shown.interval
        flipped = sum(opinion.score == -opinion.case.score != 0 for opinion in one.shown)
        development = one.opinions.get("development")
        table.add_row(
            one.name,
            f"{shown.value:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{agreement.agreement(development).value:.3f}" if development else "",
            str(flipped),
            str(sum(opinion.score is None for opinion in one.shown)),
            f"{agreement.hint_precision(one.shown).value:.3f}",
            f"{agreement.hint_recall(one.shown).value:.3f}",
            f"{1000 * one.seconds / sum(map(len, one.opinions.values())):.1f}",
        )
    return table


def _kinds(measured: Sequence[Measured]) -> Table:
    table = Table("kind of next state", "cases", *(one.name for one in measured))
    shares = [agreement.by_kind(one.shown) for one in measured]
    for kind, first in shares[0].items():
        table.add_row(kind, str(first.total), *(_percent(of_judge[kind]) for of_judge in shares))
    return table


def _percent(share: Share) -> str:
    return f"{100 * share.value:.0f} %"
