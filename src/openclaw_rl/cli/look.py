"""Commands that look: at the settings, the store, one number's origin, and a running server."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from openclaw_rl import config as settings_file
from openclaw_rl import trace
from openclaw_rl.cli import address, terminal
from openclaw_rl.cli.address import Url
from openclaw_rl.cli.flags import ConfigFile, DataDir, Port, Set, as_settings


def config(
    explain: Annotated[bool, typer.Option("--explain", help="Say what each setting means instead.")] = False,
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    set_: Set = None,
) -> None:
    """Print every setting with its value and where that came from; secrets are masked."""
    settings, origins = settings_file.load(config_file, as_settings(set_, data_dir=data_dir))
    third = settings_file.meanings() if explain else origins
    table = Table("setting", "value", "meaning" if explain else "from", box=None)
    for name, value in settings_file.describe(settings).items():
        table.add_row(name, value, third[name])
    terminal.show(table)


def status(config_file: ConfigFile = None, data_dir: DataDir = None, set_: Set = None) -> None:
    """Say what waits for what, which version serves, and what the processes do."""
    settings, _ = settings_file.load(config_file, as_settings(set_, data_dir=data_dir))
    for part in trace.status(terminal.open_store(settings), settings):
        terminal.show(part)


def show(
    kind: Annotated[str, typer.Argument(help="turns, turn, sample, update or version")],
    name: Annotated[str, typer.Argument(help="Its id or number; turns has none.")] = "",
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """List the newest turns, or print one turn, sample, update or version with all behind it."""
    settings, _ = settings_file.load(config_file, as_settings(data_dir=data_dir))
    terminal.show(trace.show(terminal.open_store(settings), kind, name))


def doctor(
    url: Url = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="Else the first of server.api_keys. Of the upstream, where there is one."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="To ask; else the first that the server lists.")] = None,
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Try a running server and say what is wrong with it, one line a check; exit status 1 if anything is."""
    settings = address.load(config_file, as_settings(set_, data_dir=data_dir, port=port), url)
    from openclaw_rl.doctor import run

    raise typer.Exit(run(settings, url, api_key, model, typer.echo))
