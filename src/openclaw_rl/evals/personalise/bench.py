"""`openclaw-rl bench personalise`: which runs are wanted, which are done, and what the done ones come to.

Seeds are the outer loop and methods the inner one, so that a table of an unfinished experiment is balanced.
Runs go one at a time. Knows no server and no statistics.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from openclaw_rl.config import EMBEDDED_MODEL
from openclaw_rl.evals import live
from openclaw_rl.evals.personalise import report, table
from openclaw_rl.evals.personalise.conversations import MOST_SESSIONS
from openclaw_rl.evals.personalise.methods import METHODS, Method
from openclaw_rl.evals.personalise.personas import PERSONAS, Persona
from openclaw_rl.evals.personalise.questions import questions
from openclaw_rl.evals.personalise.run import Plan, Run
from openclaw_rl.evals.personalise.run import Progress as RunProgress
from openclaw_rl.evals.personalise.run_file import RunFile, load_all, name_of
from openclaw_rl.evals.progress_lines import ProgressLines
from openclaw_rl.evals.results import write
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.processes.up import ChildRefusedError

HELD_OUT = 64
"""Questions of an evaluation: the first ones of the held-out set."""

MEASURE_AT = (4, 8, 16)

WATCH_SECONDS = 0.5

TOO_WIDE = ("told base", "drift", "words", "turns", "seconds")
"""Columns that a terminal has no room for; the page has them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    persona: Persona
    method: Method
    seed: int


@dataclass(frozen=True, slots=True)
class Bench:
    """The experiment: what is to be run, and where it leaves what it found."""

    personas: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    updates: int
    results: Path
    """A folder of run files; those that are there are not run again."""
    work: Path
    settings: dict[str, object]
    """For every run, over the method's."""

    def wanted(self) -> list[Wanted]:
        """Every run, in the order in which they are made. What no seed changes is run once."""
        return [
            Wanted(PERSONAS[persona], METHODS[method], seed)
            for seed in self.seeds
            for persona in self.personas
            for method in METHODS
            if method in self.methods and (METHODS[method].talks or seed == self.seeds[0])
        ]

    def missing(self) -> list[Wanted]:
        return [
            one
            for one in self.wanted()
            if not (self.results / name_of(one.persona.name, one.method.name, one.seed)).exists()
        ]

    def run(self, json_file: Path | None) -> None:
        """Make what is missing, print the table and write it to `json_file`, beside it a page and a plot.

        A run that fails ends the bench; the table of those before it is written.
        """
        console = Console()
        model_files.resolve(EMBEDDED_MODEL, lambda text: console.print(text, markup=False))
        missing = self.missing()
        console.print(f"{len(self.wanted())} runs, {len(missing)} of them to be made; kept in {self.results}")
        train, held_out = questions("train"), dict(list(questions("held_out").items())[:HELD_OUT])
        took: list[float] = []
        for place, one in enumerate(missing):
            plan = Plan(
                one.persona,
                one.method,
                one.seed,
                (*(at for at in MEASURE_AT if at < self.updates), self.updates),
                train,
                held_out,
                settings=self.settings,
            )
            started = time.monotonic()
            try:
                self._make(plan, f"run {place + 1} of {len(missing)}", took, len(missing) - place, console)
            except (httpx2.HTTPError, ExceptionGroup, TimeoutError, ChildRefusedError) as error:
                why = live.first(error)
                said = f"{type(why).__name__} {why}".strip()
                console.print(f"stopped: {said}; run the same command again to go on", markup=False)
                raise SystemExit(1) from None
            except KeyboardInterrupt:
                console.print("stopped; finished runs are kept, run the same command again to go on")
                raise SystemExit(130) from None
            if one.method.talks:
                took.append(time.monotonic() - started)
            self.report(json_file)
        self.report(json_file)
        runs = load_all(self.results)
        console.print(summary(runs))
        if json_file is not None:
            report.page(runs, json_file.with_suffix(".html"))
            report.draw(runs, json_file.with_suffix(".png"))
            console.print(f"written to {json_file}, .html and .png", markup=False)

    def _make(self, plan: Plan, name: str, took: Sequence[float], left: int, console: Console) -> None:
        """One run, with a bar below what it says, or lines where there is no terminal."""
        progress = RunProgress()
        label = f"{plan.persona.name} {plan.method.name} seed {plan.seed}"
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        left_column = TextColumn("{task.fields[left]}")
        bar = Progress(*columns, left_column, console=console, disable=not console.is_terminal)
        lines = ProgressLines(lambda text: console.print(text, markup=False, soft_wrap=True))
        done = threading.Event()

        def watch() -> None:
            total = plan.measure_at[-1]
            task = bar.add_task(name, total=total, left="")
            while not done.wait(WATCH_SECONDS):
                seconds = statistics.fmean(took) * left if took else None
                doing = f"{name}: {label}, {progress.doing}"
                for_all = f"about {seconds / 60:.0f} min for all" if seconds else ""
                bar.update(task, completed=progress.updates, description=doing, left=for_all)
                if bar.disable:
                    made = f"{progress.updates} of {total} updates, {progress.turns} turns"
                    lines.tell(doing, ", ".join(filter(None, (doing, made, for_all))))

        with bar:
            watching = threading.Thread(target=watch, daemon=True)
            watching.start()
            try:
                run = Run(plan, self.work, progress, lambda text: bar.console.print(text, markup=False))
                run.run().save(self.results)
            finally:
                done.set()
                watching.join()

    def report(self, json_file: Path | None) -> None:
        """Write the table of all runs that are there."""
        if json_file is None:
            return
        runs = load_all(self.results)
        written = {
            "table": [row.to_json() for row in table.rows(runs)],
            "sessions": [asdict(one) for one in table.sessions(runs, MOST_SESSIONS)],
            "runs": [
                {"persona": run.persona, "method": run.method, "seed": run.seed, **run.provenance}
                for run in runs
            ],
        }
        write(json_file, written)


def summary(runs: Sequence[RunFile]) -> Table:
    """The table as it is printed."""
    columns = {name: shown for name, shown in table.COLUMNS.items() if name not in TOO_WIDE}
    printed = Table(*columns, box=None)
    for row in table.rows(runs):
        printed.add_row(*(shown(row) for shown in columns.values()))
    return printed
