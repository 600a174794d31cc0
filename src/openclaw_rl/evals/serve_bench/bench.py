"""Runs the parts that were asked for, shows what they found and writes the numbers.

Ratios are of medians, and of numbers that were measured in the same run and in turns.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig

from openclaw_rl import config
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.evals import provenance, rivals
from openclaw_rl.evals.random_versions import RandomVersions
from openclaw_rl.evals.results import read, write
from openclaw_rl.evals.serve_bench import endless, learning, reuse, sessions, speed
from openclaw_rl.evals.serve_bench.plan import SERVED, Plan, Steps
from openclaw_rl.evals.serve_bench.summary import Part, ratios
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import available_cores

_MEASURED: dict[str, Callable[[Plan, Steps], Part]] = {
    "engine": speed.engine,
    "gateway": speed.gateway,
    "reuse": reuse.reuse,
    "learning": learning.learning,
    "busy": speed.busy,
    "memory": sessions.memory,
    "vllm": speed.vllm,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for; see `Plan`. `sessions` is the last mark of the part `memory`."""

    parts: Sequence[str]
    streams: Sequence[int]
    tokens: int
    rounds: int
    long: int
    updates: int
    sessions: int
    with_rival: bool


def run(flags: Mapping[str, Any], asked: Asked, json_file: Path | None, compare: Path | None) -> None:
    """Measure with settings `flags`, by dotted name; print what came out and what changed since `compare`."""
    commit = provenance.commit()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    earlier = read(compare, "bench serve") if compare else None
    settings, _ = config.load(None, dict(flags))

    def say(text: str) -> None:
        console.print(text, markup=False)

    folder = model_files.resolve(settings.model.name, say)
    chosen = [name for name in asked.parts if asked.with_rival or name != "vllm"]
    python = _python_with_vllm(settings, say) if "vllm" in chosen else None
    found: dict[str, Part] = {}
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as scratch:
        plan = _plan(flags, settings, folder, Path(scratch), asked, python)
        for name in chosen:
            found[name] = _MEASURED[name](plan, Steps(console))
            _show(name, found[name], console)
    now = ratios(found)
    result = {
        "ratios": now,
        "parts": found,
        "commit": commit,
        "machine": provenance.machine(),
        "versions": {"torch": torch.__version__},
        "model": settings.served_name,
        "work": {
            "tokens": plan.tokens,
            "streams": list(plan.streams),
            "rounds": plan.rounds,
            "dtype": plan.dtype,
            "device": plan.device,
            "threads": plan.threads,
        },
    }
    _show_ratios(now, earlier, console)
    if json_file is not None:
        write(json_file, result)
        say(f"written to {json_file}")


def _plan(
    flags: Mapping[str, Any],
    settings: Settings,
    folder: Path,
    scratch: Path,
    asked: Asked,
    python_with_vllm: Path | None,
) -> Plan:
    model_folder = endless.make(folder, scratch / "model")
    device = model_files.choose_device(settings.model.device)
    threads = settings.engine.threads or available_cores()
    return Plan(
        settings={
            "engine.max_concurrent": max(*asked.streams, settings.engine.max_concurrent),
            **flags,
            "engine.threads": threads,
            "model.name": str(model_folder),
            "model.served_name": SERVED,
        },
        model_folder=model_folder,
        adapter_folder=RandomVersions(model_folder, settings.learn).write(1, scratch / "versions", SERVED),
        context=_context(model_folder),
        dtype=str(model_files.choose_dtype(settings.model.dtype, device)).removeprefix("torch."),
        device=str(device),
        threads=threads,
        streams=tuple(sorted(set(asked.streams))),
        tokens=asked.tokens,
        rounds=asked.rounds,
        long=asked.long,
        learn=settings.learn,
        updates=asked.updates,
        sessions=_marks(asked.sessions),
        scratch=scratch,
        python_with_vllm=python_with_vllm,
    )


def _context(model_folder: Path) -> int:
    config = AutoConfig.from_pretrained(model_folder, trust_remote_code=False).get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or sys.maxsize)


def _marks(sessions: int) -> tuple[int, ...]:
    """An eighth of them, a quarter, half and all."""
    return tuple(sorted({max(1, sessions // part) for part in (8, 4, 2, 1)}))


def _python_with_vllm(settings: Settings, say: Callable[[str], None]) -> Path:
    if model_files.choose_device(settings.model.device).type != "cpu":
        raise ConfigError(
            "vLLM is measured on CPUs only: set model.device=cpu, or leave it out with --no-rival"
        )
    try:
        return rivals.python_with_vllm(model_files.cache_folder() / "rivals", say)
    except rivals.CannotInstallError as error:
        raise ConfigError(f"{error}; leave it out with --no-rival") from None


def _show(name: str, part: Part, console: Console) -> None:
    table = Table(name, "streams", "tokens/s", "first token", "longest gap", box=None)
    for contender, by_count in part.get("contenders", {}).items():
        for count, numbers in by_count.items():
            times = (numbers.get("first_token_ms"), numbers.get("longest_gap_ms"))
            table.add_row(
                contender,
                count,
                f"{numbers['tokens_per_second']:.1f}",
                *("" if t is None else f"{t:.0f} ms" for t in times),
            )
    for contender, first in part.get("first_token_ms", {}).items():
        table.add_row(contender, "1", "", f"{first:.1f} ms", "")
    for how in ("with", "without"):
        if how in part:
            table.add_row(f"{how} reuse", "1", "", f"{part[how]['first_token_ms']:.0f} ms", "")
    for when in ("alone", "learning"):
        if when in part:
            rate, gap = part[when]["tokens_per_second"], part[when]["longest_gap_ms"]
            table.add_row(when, str(part["streams"]), f"{rate:.1f}", "", f"{gap:.0f} ms")
    if "sessions_mb" in part:
        table = Table(name, "sessions", "resident", box=None)
        for count, megabytes in part["sessions_mb"]:
            table.add_row("", str(count), f"{megabytes:.0f} MB")
    console.print(table)


def _show_ratios(now: Mapping[str, float], earlier: Mapping[str, Any] | None, console: Console) -> None:
    table = Table("ratio", "", "was" if earlier else "", box=None)
    for name, ratio in now.items():
        before = earlier["ratios"].get(name) if earlier else None
        table.add_row(name, f"{ratio:g}", "" if before is None else f"{before:g}")
    console.print(table)
