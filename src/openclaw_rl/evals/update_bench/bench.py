"""Measures the step, ours and TRL's in turns, shows what came out, and writes the numbers.

Each contender runs in a process of its own, several times in turns, so that a busy moment of the machine
meets both. Ratios are of medians.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from openclaw_rl import process_environment
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.evals import provenance, rivals
from openclaw_rl.evals.results import read, write
from openclaw_rl.evals.update_bench.work import Work, replies
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import available_cores

METHODS = ("binary", "hybrid")
STEPS = 3
"""Of each process; the first also fills caches and is not counted."""

Found = dict[str, Any]


def run(
    settings: Settings,
    *,
    samples: int,
    tokens: int,
    rounds: int,
    with_rival: bool,
    json_file: Path | None,
    compare: Path | None,
) -> None:
    """Measure `rounds` times each; print a table, the ratios, and how they differ from `compare`'s."""
    commit = provenance.commit()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    earlier = read(compare, "bench update") if compare else None

    def say(text: str) -> None:
        console.print(text, markup=False)

    folder = model_files.resolve(settings.model.name, say)
    python = _python_with_trl(say) if with_rival else None
    work = _work(settings, folder, samples, tokens)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "work.json"
        work.write(file)
        contenders = {method: _ours(file, method) for method in METHODS}
        if python is not None:
            contenders["trl"] = [str(python), str(Path(__file__).with_name("trl_step.py")), str(file)]
        found = _in_turns(contenders, work.threads, rounds, console)
    result = summary(found)
    result |= {
        "commit": commit,
        "model": settings.served_name,
        "work": {"samples": samples, "tokens": tokens, "dtype": work.dtype, "threads": work.threads},
    }
    _show(result, earlier, console)
    if json_file is not None:
        write(json_file, result)
        say(f"written to {json_file}")


def _python_with_trl(say: Callable[[str], None]) -> Path:
    try:
        return rivals.python_with_trl(model_files.cache_folder() / "rivals", say)
    except rivals.CannotInstallError as error:
        raise ConfigError(f"{error}; leave it out with --no-rival") from None


def _work(settings: Settings, folder: Path, samples: int, tokens: int) -> Work:
    template = model_files.load_template(folder)
    dtype = model_files.choose_dtype(settings.model.dtype, torch.device("cpu"))
    return Work(
        model_folder=str(folder),
        dtype=str(dtype).removeprefix("torch."),
        threads=settings.learn.threads or available_cores(),
        steps=STEPS,
        replies=replies(template, _vocabulary(folder), samples, tokens),
        lora_rank=settings.learn.lora_rank,
        lora_alpha=settings.learn.lora_alpha,
        lora_targets=settings.learn.lora_targets,
        learning_rate=settings.learn.learning_rate,
        tokens_per_pass=settings.learn.tokens_per_pass,
    )


def _vocabulary(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"])


def _ours(work: Path, method: str) -> list[str]:
    return [sys.executable, "-m", "openclaw_rl.evals.update_bench.ours", str(work), method]


def _in_turns(
    contenders: dict[str, list[str]], threads: int, rounds: int, console: Console
) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {name: [] for name in contenders}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * len(contenders))
        for _ in range(rounds):
            for name, command in contenders.items():
                progress.update(task, description=f"measuring {name}")
                found[name].append(_measure(name, command, threads))
                progress.advance(task)
    return found


def _measure(name: str, command: list[str], threads: int) -> Found:
    is_ours = command[0] == sys.executable
    environment = process_environment.ours(background=True) if is_ours else process_environment.others()
    environment |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ConfigError(f"{name} could not be measured: {last}")
    result: Found = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def summary(found: dict[str, list[Found]]) -> Found:
    """Medians of each contender over its counted steps, and the ratios between them.

    `found` holds what each contender's processes printed. `vs_trl` is how many times faster than TRL's
    step ours with the same reward is, `memory_vs_trl` our peak as a share of its, and `of_matmul_limit`
    how many times longer than the matrix products alone.
    """
    contenders: Found = {}
    for name, runs in found.items():
        contenders[name] = {
            "seconds": round(median(_counted(runs, "seconds")), 3),
            "peak_mb": round(max(run["peak_bytes"] for run in runs) / 2**20),
        }
        if name in METHODS:
            parts = [part for run in runs for part in run["parts"][1:]]
            spent = {key: round(median(part[key] for part in parts), 3) for key in parts[0]}
            contenders[name] |= {
                "parts": spent,
                "loaded_mb": round(max(run["loaded_bytes"] for run in runs) / 2**20),
            }
    binary = contenders["binary"]
    limit = median(_counted(found["binary"], "limit_seconds"))
    ratios = {"of_matmul_limit": round(binary["seconds"] / limit, 2)}
    if "trl" in contenders:
        contenders["trl"]["version"] = found["trl"][0]["version"]
        ratios["vs_trl"] = round(contenders["trl"]["seconds"] / binary["seconds"], 2)
        ratios["memory_vs_trl"] = round(binary["peak_mb"] / contenders["trl"]["peak_mb"], 2)
    return {"ratios": ratios, "contenders": contenders, "matmul_limit_seconds": round(limit, 3)}


def _counted(runs: Sequence[Found], what: str) -> list[float]:
    return [value for run in runs for value in run[what][1:]]


def _show(result: Found, earlier: Found | None, console: Console) -> None:
    table = Table("step", "seconds", "peak memory", "of which", box=None)
    for name, one in result["contenders"].items():
        spent = one.get("parts", {}).items()
        parts = ", ".join(f"{part} {seconds / one['seconds']:.0%}" for part, seconds in spent)
        shown = f"ours, {name}" if name in METHODS else f"TRL {one['version']}, GRPO"
        table.add_row(shown, f"{one['seconds']:.2f}", f"{one['peak_mb']} MB", parts)
    table.add_row("matrix products alone", f"{result['matmul_limit_seconds']:.2f}", "", "")
    console.print(table)
    meaning: dict[str, Callable[[float], str]] = {
        "of_matmul_limit": lambda ratio: f"{ratio:.2f} times the matrix products alone",
        "vs_trl": lambda ratio: f"{ratio:.2f} times as fast as TRL",
        "memory_vs_trl": lambda ratio: f"{ratio:.0%} of TRL's peak memory",
    }
    for name, ratio in result["ratios"].items():
        before = earlier["ratios"].get(name) if earlier else None
        console.print(meaning[name](ratio) + (f" (was {before:.2f})" if before else ""), markup=False)
