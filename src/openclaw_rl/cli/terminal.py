"""What commands share at the terminal: a line for the user, tables, the log, and what must be there.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from typing import Any

import typer
from rich.console import Console

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.processes.running import refuse_starting
from openclaw_rl.store import Store


def say(text: str) -> None:
    """One line for the user, on stderr."""
    typer.echo(text, err=True)


def show(what: Any) -> None:
    """A result, on stdout: a text as it is, or anything that rich can draw."""
    if isinstance(what, str):  # neither wrapped nor read as markup
        typer.echo(what)
        return
    # A pipe or file gets whole lines, a terminal its own width.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(what, markup=False)


def log_to_terminal() -> None:
    """Our own log on stderr; libraries only when they warn."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    for noisy in ("httpx", "httpx2", "transformers", "urllib3", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def need_local(command: str) -> None:
    """Raises ConfigError, with the fix, where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            f"`openclaw-rl {command}` needs PyTorch: pip install 'openclaw-rl[local]', in a clone '.[local]'"
        )


def open_store(settings: Settings) -> Store:
    """The store that is there already. Raises ConfigError when there is none, NotYetError when one comes."""
    refuse_starting(settings)
    if not settings.database.exists():
        raise ConfigError(f"nothing has run on {settings.home} yet; start `openclaw-rl up` or set --data-dir")
    return Store.open(settings.database)
