"""Commands that say how a client is connected. They print what to put where, and write nothing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from openclaw_rl import config
from openclaw_rl.cli import terminal
from openclaw_rl.cli.flags import ConfigFile, Port, Set, as_settings
from openclaw_rl.connect import openai as openai_client
from openclaw_rl.connect import openclaw as openclaw_client
from openclaw_rl.connect.served import Served, look

Url = Annotated[str | None, typer.Option(help="Of the server; else as the settings say.")]
ApiKey = Annotated[str | None, typer.Option(help="Else the first of server.api_keys; it is not printed.")]


def openclaw(
    url: Url = None,
    api_key: ApiKey = None,
    config_file: ConfigFile = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Print OpenClaw's configuration for the server, and on stderr how to apply and undo it."""
    served = _look(url, api_key, config_file, port, set_)
    terminal.show(json.dumps(openclaw_client.patch(served), indent=2))
    _remark(openclaw_client.remarks(served))


def openai(
    url: Url = None,
    api_key: ApiKey = None,
    config_file: ConfigFile = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Print the environment variables that programs made with OpenAI's libraries read."""
    served = _look(url, api_key, config_file, port, set_)
    terminal.show(openai_client.variables(served))
    _remark(openai_client.remarks(served))


def _look(url: Url, api_key: ApiKey, config_file: ConfigFile, port: Port, set_: Set) -> Served:
    settings, _ = config.load(config_file, as_settings(set_, port=port))
    return look(settings, url, api_key)


def _remark(lines: list[str]) -> None:
    for line in lines:
        terminal.say(f"# {line}")
