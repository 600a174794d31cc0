"""The commands. Each turns flags into settings, calls one function, and prints one line when it cannot.

Imports of PyTorch happen inside the commands that need it: the base install has none, and `--help` is quick.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from openclaw_rl import __version__, config, trace
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.processes.parent import end_with
from openclaw_rl.processes.single import AlreadyRunningError
from openclaw_rl.store import SchemaError, Store

app = typer.Typer(
    name="openclaw-rl",
    help="Serve your agent's model, notice what follows each reply, and keep improving the weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

bench = typer.Typer(help="Measure what the README claims.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench, name="bench")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; else ./openclaw-rl.toml.")]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="Store, versions and process files.")]
Model = Annotated[str | None, typer.Option("--model", help="A Hugging Face name or a folder.")]
Parent = Annotated[int | None, typer.Option(hidden=True, help="End with this process.")]
Method = Annotated[str | None, typer.Option("--method", help="binary, opd, opd_top_k, combined or hybrid.")]
JudgeKind = Annotated[str | None, typer.Option("--judge", help="rules, self, or the URL of a server.")]
Host = Annotated[str | None, typer.Option("--host", help="Anything but loopback needs api_keys.")]
Port = Annotated[int | None, typer.Option("--port", help="0 takes a free port.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting of `openclaw-rl config`, as NAME=VALUE."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    method: Method = None,
    judge: JudgeKind = None,
    host: Host = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Serve and learn on this machine, until Ctrl-C."""
    flags = _flags(data_dir, model, method, judge, host, port, set_)
    settings, _ = config.load(config_file, flags)
    _need_local("up")
    _log_to_terminal()
    from openclaw_rl.gateway.auth import check_bind
    from openclaw_rl.policy.embedded import model_files
    from openclaw_rl.processes.single import only_one
    from openclaw_rl.processes.up import REFUSED, ChildRefusedError, Supervisor

    check_bind(settings)
    with only_one(settings.home, "supervisor"):
        model_files.resolve(settings.model.name, _say)
        address = f"http://{settings.server.host}:{settings.server.port}/v1"
        key = "" if settings.server.api_keys else " (any API key)"
        _say(f"starting; once it serves, {settings.served_name} answers at {address}{key}")
        _say(f"Ctrl-C stops; `openclaw-rl up --data-dir {settings.home}` goes on where it stopped")
        try:
            Supervisor(_as_arguments(config_file, flags), _say).run()
        except ChildRefusedError as error:
            _say(f"openclaw-rl: {error}")
            raise typer.Exit(REFUSED) from None


@app.command()
def serve(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    judge: JudgeKind = None,
    host: Host = None,
    port: Port = None,
    set_: Set = None,
    parent: Parent = None,
) -> None:
    """Run the server alone."""
    settings, _ = config.load(config_file, _flags(data_dir, model, None, judge, host, port, set_))
    _need_local("serve")
    _log_to_terminal()
    from openclaw_rl.processes.serve import serve as run

    if parent is not None:
        end_with(parent)
    run(settings)


@app.command()
def learn(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    method: Method = None,
    judge: JudgeKind = None,
    set_: Set = None,
    parent: Parent = None,
) -> None:
    """Run the judge and the trainer alone."""
    settings, _ = config.load(config_file, _flags(data_dir, model, method, judge, None, None, set_))
    _need_local("learn")
    _log_to_terminal()
    from openclaw_rl.processes.learn import learn as run

    if parent is not None:
        end_with(parent)
    run(settings)


@app.command("config")
def show_config(config_file: ConfigFile = None, data_dir: DataDir = None, set_: Set = None) -> None:
    """Print every setting with its value and where that came from; secrets are masked."""
    settings, origins = config.load(config_file, _flags(data_dir, None, None, None, None, None, set_))
    table = Table("setting", "value", "from", box=None)
    for name, value in config.describe(settings).items():
        table.add_row(name, value, origins[name])
    _print(table)


@app.command()
def status(config_file: ConfigFile = None, data_dir: DataDir = None, set_: Set = None) -> None:
    """Say what waits for what, which version serves, and what the processes do."""
    settings, _ = config.load(config_file, _flags(data_dir, None, None, None, None, None, set_))
    for part in trace.status(_open_store(settings), settings):
        _print(part)


@app.command()
def show(
    kind: Annotated[str, typer.Argument(help="turn, sample, update or version")],
    name: Annotated[str, typer.Argument(help="Its id or number.")],
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Print where a number came from: a turn, sample, update or version with all behind it."""
    settings, _ = config.load(config_file, _flags(data_dir, None, None, None, None, None, None))
    _print(trace.show(_open_store(settings), kind, name))


@app.command()
def doctor(
    url: Annotated[str | None, typer.Option(help="Of the server; else as the settings say.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Else the first of server.api_keys.")] = None,
    config_file: ConfigFile = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Try a running server and say what is wrong with it, one line a check; exit status 1 if anything is."""
    settings, _ = config.load(config_file, _flags(None, None, None, None, None, port, set_))
    from openclaw_rl.doctor import run

    raise typer.Exit(run(settings, url, api_key, typer.echo))


@app.command()
def fetch(model: Model = None, config_file: ConfigFile = None) -> None:
    """Fetch the model's files now instead of at the first start; prints their folder."""
    settings, _ = config.load(config_file, _flags(None, model, None, None, None, None, None))
    _need_local("fetch")
    from openclaw_rl.policy.embedded import model_files

    typer.echo(str(model_files.resolve(settings.model.name, _say)))


@app.command()
def demo(
    data_dir: Annotated[Path, typer.Option(help="A folder for this run; it is resumed if it exists.")] = Path(
        "demo-run"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the scores here.")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated user and the trainer.")] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Updates to learn for.")] = 16,
    method: Annotated[str, typer.Option(help="binary, opd, opd_top_k, combined or hybrid.")] = "hybrid",
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an earlier run first.")] = False,
) -> None:
    """Watch it learn: a simulated user talks to the real server until its first replies please."""
    _need_local("demo")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("`openclaw-rl demo` draws a plot: pip install 'openclaw-rl[local,demo]'")
    from openclaw_rl.evals.demo import Demo

    Demo(data_dir, seed=seed, updates=updates, method=method, fresh=fresh).run(json_file)


@bench.command("judge")
def bench_judge(
    judges: Annotated[
        list[str] | None, typer.Option("--judge", help="rules, self, or the URL of a server; repeatable.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the numbers here.")] = None,
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
    settings, _ = config.load(config_file, _flags(None, model, None, None, None, None, set_))
    from openclaw_rl.evals.judge_bench import bench as judge_bench
    from openclaw_rl.evals.judge_bench.cases import halves

    asked = judges or ["rules"]
    if "self" in asked:
        _need_local("bench judge --judge self")
        _log_to_terminal()
    judge_bench.run(settings, asked, halves(half), most, json_file)


def main() -> None:
    """The entry point: errors that a user can mend are one line on stderr.

    Exit status 2 says that the same command would fail again, 1 that it may not: `up` starts a process that
    ended with 1 once more.
    """
    # Read by OpenMP when PyTorch is loaded: see processes.up.environment.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except (ConfigError, SchemaError, AlreadyRunningError) as error:
        _end(2, str(error))
    except SQLAlchemyError as error:
        # Operational errors are a lock held too long or a full disk; others are a file that is no store.
        may_pass = isinstance(error, OperationalError)
        _end(1 if may_pass else 2, f"the store cannot be used: {str(error).splitlines()[0]}")
    except OSError as error:  # a folder that is a file, a full disk, a right that is missing
        _end(1, str(error))


def _end(status: int, why: str) -> NoReturn:
    _say(f"openclaw-rl: {why}")
    sys.exit(status)


def _flags(
    data_dir: str | None,
    model: str | None,
    method: str | None,
    judge: str | None,
    host: str | None,
    port: int | None,
    settings: list[str] | None,
) -> dict[str, Any]:
    """The flags that were given, by dotted setting name. Raises ConfigError for a `--set` without "="."""
    given: dict[str, Any] = {}
    for assignment in settings or []:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"--set {assignment}: write NAME=VALUE, such as --set learn.batch_size=8")
        given[name.strip()] = value.strip()
    named = {
        "data_dir": data_dir,
        "model.name": model,
        "learn.method": method,
        "judge.kind": judge,
        "server.host": host,
        "server.port": port,
    }
    return {**given, **{name: value for name, value in named.items() if value is not None}}


def _as_arguments(config_file: Path | None, flags: dict[str, Any]) -> list[str]:
    """The same settings as arguments for a child process."""
    arguments = [] if config_file is None else ["--config", str(config_file)]
    for name, value in flags.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


def _need_local(command: str) -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise ConfigError(f"`openclaw-rl {command}` needs PyTorch: pip install 'openclaw-rl[local]'")


def _open_store(settings: Settings) -> Store:
    if not settings.database.exists():
        raise ConfigError(f"nothing has run on {settings.home} yet; start `openclaw-rl up` or set --data-dir")
    return Store.open(settings.database)


def _log_to_terminal() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    for noisy in ("httpx", "httpx2", "transformers", "urllib3", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _print(what: Any) -> None:
    if isinstance(what, str):  # as it is: neither wrapped nor read as markup
        typer.echo(what)
        return
    # A pipe or file gets whole lines, a terminal its own width.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(what, markup=False)
