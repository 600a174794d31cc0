"""Commands that measure what the README claims."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl import config
from openclaw_rl.cli.flags import Compare, ConfigFile, Json, Model, Set, as_settings
from openclaw_rl.cli.terminal import log_to_terminal, need_local
from openclaw_rl.config import ConfigError


def demo(
    data_dir: Annotated[Path, typer.Option(help="A folder for this run; it is resumed if it exists.")] = Path(
        "demo-run"
    ),
    json_file: Json = None,
    seed: Annotated[int, typer.Option(help="Of the simulated user and the trainer.")] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Updates to learn for.")] = 16,
    method: Annotated[str, typer.Option(help="binary, opd, opd_top_k, combined or hybrid.")] = "hybrid",
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an earlier run first.")] = False,
) -> None:
    """Watch it learn: a simulated user talks to the real server until its first replies please."""
    need_local("demo")
    _need_matplotlib("demo")
    from openclaw_rl.evals.demo import Demo

    Demo(data_dir, seed=seed, updates=updates, method=method, fresh=fresh).run(json_file)


def judge(
    judges: Annotated[
        list[str] | None, typer.Option("--judge", help="rules, self, or the URL of a server; repeatable.")
    ] = None,
    json_file: Json = None,
    half: Annotated[
        str, typer.Option(help="all, development or held_out; change a judge by development alone.")
    ] = "all",
    most: Annotated[
        int | None, typer.Option("--cases", min=1, help="At most so many of each half, evenly spread.")
    ] = None,
    config_file: ConfigFile = None,
    model: Model = None,
    set_: Set = None,
) -> None:
    """Agreement of judges with next states labelled by hand."""
    from openclaw_rl.evals.judge_bench import bench
    from openclaw_rl.evals.judge_bench.cases import halves

    asked = judges or ["rules"]
    settings = [config.load(config_file, as_settings(set_, model=model, judge=name))[0] for name in asked]
    if "self" in asked:
        need_local("bench judge --judge self")
        log_to_terminal()
    bench.run(settings, halves(half), most, json_file)


def update(
    json_file: Json = None,
    compare: Compare = None,
    samples: Annotated[int, typer.Option(min=1, help="Replies of one step.")] = 16,
    tokens: Annotated[int, typer.Option(min=1, help="Of each reply.")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="Processes of each contender, in turns.")] = 3,
    rival: Annotated[
        bool, typer.Option(help="Also measure TRL, in an environment of its own that is made once.")
    ] = True,
    config_file: ConfigFile = None,
    model: Model = None,
    set_: Set = None,
) -> None:
    """What one optimiser step costs in seconds and memory, beside TRL's and the machine's limit."""
    settings, _ = config.load(config_file, as_settings(set_, model=model))
    need_local("bench update")
    from openclaw_rl.evals.update_bench import bench

    bench.run(
        settings,
        samples=samples,
        tokens=tokens,
        rounds=rounds,
        with_rival=rival,
        json_file=json_file,
        compare=compare,
    )


def serve(
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="engine, gateway, reuse, learning, busy, memory or vllm; repeatable; else all of them."
        ),
    ] = None,
    json_file: Json = None,
    compare: Compare = None,
    streams: Annotated[
        list[int] | None, typer.Option(min=1, help="Replies at the same time; repeatable; else 1, 4, 8, 16.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="New tokens of each reply.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Times that everyone is measured, in turns.")] = 3,
    long: Annotated[int, typer.Option(min=64, help="Tokens of the long prompt.")] = 4096,
    updates: Annotated[int, typer.Option(min=1, help="Taken by the learner beside the streams.")] = 2,
    sessions: Annotated[int, typer.Option(min=1, help="After which memory is read last.")] = 2000,
    rival: Annotated[
        bool, typer.Option(help="Also measure vLLM on the CPU, in an environment that is made once.")
    ] = True,
    model: Model = None,
    set_: Set = None,
) -> None:
    """How fast replies come, beside `transformers` and vLLM; and through the gateway, and while it learns."""
    from openclaw_rl.evals.serve_bench import PARTS

    flags = as_settings(set_, model=model)
    for name in part or ():
        if name not in PARTS:
            raise ConfigError(f"bench serve has no part {name}; choose from {', '.join(PARTS)}")
    need_local("bench serve")
    from openclaw_rl.evals.serve_bench import bench

    asked = bench.Asked(
        part or PARTS,
        streams or [1, 4, 8, 16],
        tokens,
        rounds,
        long,
        updates,
        sessions,
        with_rival=rival,
    )
    bench.run(flags, asked, json_file, compare)


def swap(
    chats: Annotated[int, typer.Option(min=1, help="At least so many, of two turns each.")] = 1000,
    swaps: Annotated[int, typer.Option(min=1, help="Versions that go live meanwhile.")] = 50,
    clients: Annotated[int, typer.Option(min=1, help="That talk at the same time.")] = 8,
    tokens: Annotated[int, typer.Option(min=2, help="New tokens of each reply.")] = 16,
    json_file: Json = None,
    model: Model = None,
    set_: Set = None,
) -> None:
    """New versions under traffic: is every reply of one version alone? Ends with status 1 if not."""
    flags = as_settings(set_, model=model)
    need_local("bench swap")
    from openclaw_rl.evals.swap_bench import bench

    fine = bench.run(flags, chats=chats, swaps=swaps, clients=clients, tokens=tokens, json_file=json_file)
    if not fine:
        raise typer.Exit(1)


def sessions(
    json_file: Json = None,
    failures: Annotated[
        bool, typer.Option("--failures", help="List what is wrong, but for the half that is held out.")
    ] = False,
    held_out: Annotated[bool, typer.Option("--held-out", help="With --failures: of that half too.")] = False,
) -> None:
    """How well labelled conversations are found: main or side, sessions, next states. Needs no model."""
    from openclaw_rl.evals.session_bench import bench

    bench.run(json_file, failures=failures, held_out=held_out)


def personalise(
    persona: Annotated[list[str] | None, typer.Option(help="Repeatable; all of them by default.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Repeatable; all of them by default.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="So many, from --first-seed on.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0)] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Of each run that learns.")] = 16,
    results: Annotated[Path, typer.Option(help="Where finished runs are kept, and not made again.")] = Path(
        "bench/results/personalise"
    ),
    work: Annotated[Path, typer.Option(help="Where a run's processes live; emptied.")] = Path(
        "personalise-work"
    ),
    json_file: Json = None,
    set_: Set = None,
) -> None:
    """Simulated users with tastes, and methods that learn from them: the table, run by run.

    With --json FILE a report page and a plot are written beside it.
    """
    need_local("bench personalise")
    _need_matplotlib("bench personalise")
    from openclaw_rl.evals.personalise.bench import Bench
    from openclaw_rl.evals.personalise.methods import METHODS
    from openclaw_rl.evals.personalise.personas import PERSONAS

    for asked, known in ((persona, PERSONAS), (method, METHODS)):
        for name in asked or ():
            if name not in known:
                raise ConfigError(f"bench personalise knows no {name}; choose from {', '.join(known)}")
    Bench(
        persona or list(PERSONAS),
        method or list(METHODS),
        range(first_seed, first_seed + seeds),
        updates,
        results,
        work,
        as_settings(set_),
    ).run(json_file)


def _need_matplotlib(command: str) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"`openclaw-rl {command}` draws a plot: pip install 'openclaw-rl[local,demo]'")
