"""The command that hands out what the store holds, for training elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from openclaw_rl import config
from openclaw_rl import export as exported
from openclaw_rl.cli import terminal
from openclaw_rl.cli.flags import ConfigFile, DataDir, as_settings
from openclaw_rl.folder_key import FolderKey
from openclaw_rl.model import Score, TurnKind

_SCORES: dict[str, Score] = {"-1": -1, "0": 0, "1": 1, "+1": 1}


def export(
    jsonl: Annotated[Path | None, typer.Option(help="The file to write; else to stdout.")] = None,
    sft: Annotated[
        bool, typer.Option("--sft", help="Main turns of score +1, as chat fine-tuning takes them.")
    ] = False,
    kind: Annotated[str | None, typer.Option(help="main or side; else both.")] = None,
    judged: Annotated[bool, typer.Option("--judged", help="Only turns with a score or a hint.")] = False,
    min_score: Annotated[
        str | None, typer.Option(help="-1, 0 or 1: only turns that have at least it.")
    ] = None,
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Write the turns with what followed and what was said of it, one line of JSON each."""
    if kind not in (None, *TurnKind):
        raise config.ConfigError(f"--kind {kind}: say main or side")
    if min_score is not None and min_score not in _SCORES:
        raise config.ConfigError(f"--min-score {min_score}: say -1, 0 or 1")
    wanted = exported.Wanted(
        TurnKind(kind) if kind else None, judged, _SCORES[min_score] if min_score else None
    )
    settings, _ = config.load(config_file, as_settings(data_dir=data_dir))
    store = terminal.open_store(settings)
    lines = (
        exported.fine_tuning(store, wanted)
        if sft
        else exported.turns(store, FolderKey(settings.home), wanted)
    )
    count = 0
    with _written_to(jsonl) as file:
        for line in lines:
            file.write(line)
            count += 1
    terminal.say(f"{count} turns exported")


@contextmanager
def _written_to(path: Path | None) -> Iterator[TextIO]:
    """stdout, or a file that its owner alone may read: it holds conversations."""
    if path is None:
        yield sys.stdout
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        yield file
