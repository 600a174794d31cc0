"""`openclaw-rl bench sessions`: runs the labelled conversations, shows how they fared, writes the numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from openclaw_rl.evals import provenance
from openclaw_rl.evals.results import write
from openclaw_rl.evals.session_bench import scores, script
from openclaw_rl.evals.session_bench.runner import Observed, observe
from openclaw_rl.evals.session_bench.scores import Score


def run(json_file: Path | None, *, failures: bool, held_out: bool) -> None:
    """Measure; print a table; write the numbers if asked.

    With `failures`, what is wrong is listed; with `held_out`, in conversations that are held out too.
    """
    commit = provenance.commit()
    console = Console() if sys.stdout.isatty() else Console(width=160)
    observed = observe(script.load())
    console.print(_table(observed))
    if failures:
        _list_failures([one for one in observed if held_out or not one.conversation.held_out], console)
    if json_file is not None:
        write(json_file, {**results(observed), "commit": commit})
        console.print(f"written to {json_file}", markup=False)


def results(observed: Sequence[Observed]) -> dict[str, Any]:
    """All numbers: of all conversations, of each half, and of each kind."""
    return {
        **scores.to_json(observed),
        "development": scores.to_json([one for one in observed if not one.conversation.held_out]),
        "held_out": scores.to_json([one for one in observed if one.conversation.held_out]),
        "by_kind": {kind: scores.to_json(of) for kind, of in scores.by_kind(observed).items()},
        "failures": len(scores.failures(observed)),
    }


def _table(observed: Sequence[Observed]) -> Table:
    table = Table(
        "conversations",
        "number",
        "requests",
        *(f"{what}: {share}" for what in ("next state", "session", "main") for share in ("prec.", "rec.")),
    )
    held_out = [one for one in observed if one.conversation.held_out]
    for name, of in (("all", observed), ("held out", held_out)):
        _add(table, name, of)
    table.add_section()
    for kind, of_kind in scores.by_kind(observed).items():
        _add(table, kind, of_kind)
    return table


def _add(table: Table, name: str, of: Sequence[Observed]) -> None:
    shares = [
        f"{share:.3f}"
        for score in (scores.pairing(of), scores.joins(of), scores.main_lines(of))
        for share in _shares(score)
    ]
    table.add_row(name, str(len({one.conversation.name for one in of})), str(len(of)), *shares)


def _shares(score: Score) -> tuple[float, float]:
    return score.precision, score.recall


def _list_failures(observed: Sequence[Observed], console: Console) -> None:
    for failure in scores.failures(observed):
        console.print(
            f"{failure.conversation}, step {failure.step}: {failure.what} is {failure.said!r}, "
            f"should be {failure.wanted!r}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
