"""The entry point: every command by name, and how a command ends that cannot go on.

Imports of PyTorch happen inside the commands that need it: the base install has none, and `--help` is quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from openclaw_rl import __version__, process_environment
from openclaw_rl.cli import connect, export, look, measure, run
from openclaw_rl.cli.terminal import say
from openclaw_rl.config import ConfigError
from openclaw_rl.processes.running import NotYetError
from openclaw_rl.processes.single import AlreadyRunningError
from openclaw_rl.store import SchemaError

app = typer.Typer(
    name="openclaw-rl",
    help="Serve your agent's model, notice what follows each reply, and keep improving the weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure what the README claims.", no_args_is_help=True, rich_markup_mode=None)
clients = typer.Typer(
    help="Print what a client needs to use the server.", no_args_is_help=True, rich_markup_mode=None
)

app.command()(run.up)
app.command()(run.serve)
app.command()(run.learn)
app.command()(run.fetch)
app.command()(look.config)
app.command()(look.status)
app.command()(look.show)
app.command()(look.doctor)
app.command()(export.export)
app.command()(measure.demo)
app.add_typer(clients, name="connect")
clients.command()(connect.openclaw)
clients.command()(connect.openai)
app.add_typer(bench, name="bench")
bench.command()(measure.judge)
bench.command()(measure.update)
bench.command()(measure.serve)
bench.command()(measure.swap)
bench.command()(measure.sessions)
bench.command()(measure.personalise)


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


def main() -> None:
    """Run the command that the arguments name: errors that a user can mend are one line on stderr.

    Exit status 2 says that the same command would fail again, 1 that it may not: `up` starts a process that
    ended with 1 once more.
    """
    process_environment.enter()
    try:
        app()
    except (ConfigError, SchemaError, AlreadyRunningError) as error:
        _end(2, str(error))
    except SQLAlchemyError as error:
        # Operational errors are a lock held too long or a full disk; others are a file that is no store.
        may_pass = isinstance(error, OperationalError)
        _end(1 if may_pass else 2, f"the store cannot be used: {str(error).splitlines()[0]}")
    except NotYetError as error:
        _end(1, str(error))
    except OSError as error:  # a folder that is a file, a full disk, a right that is missing
        _end(1, str(error))


def _end(status: int, why: str) -> NoReturn:
    say(f"openclaw-rl: {why}")
    sys.exit(status)
