"""Commands that say how a client is connected. They print what to put where, and write nothing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from openclaw_rl.cli import address, terminal
from openclaw_rl.cli.address import Url
from openclaw_rl.cli.flags import ConfigFile, DataDir, Port, Set, as_settings
from openclaw_rl.connect import openai as openai_client
from openclaw_rl.connect import openclaw as openclaw_client
from openclaw_rl.connect.served import Served, look

ApiKey = Annotated[str | None, typer.Option(help="Else the first of server.api_keys; it is not printed.")]


def openclaw(
    url: Url = None,
    api_key: ApiKey = None,
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Print OpenClaw's configuration for the server, and on stderr how to apply and undo it."""
    served = _look(url, api_key, config_file, data_dir, port, set_)
    terminal.show(json.dumps(openclaw_client.patch(served), indent=2))
    _remark(openclaw_client.remarks(served))


def openai(
    url: Url = None,
    api_key: ApiKey = None,
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Print the environment variables that programs made with OpenAI's libraries read."""
    served = _look(url, api_key, config_file, data_dir, port, set_)
    terminal.show(openai_client.variables(served))
    _remark(openai_client.remarks(served))


def _look(
    url: Url, api_key: ApiKey, config_file: ConfigFile, data_dir: DataDir, port: Port, set_: Set
) -> Served:
    settings = address.load(config_file, as_settings(set_, data_dir=data_dir, port=port), url)
    return look(settings, url, api_key)


def _remark(lines: list[str]) -> None:
    for line in lines:
        terminal.say(f"# {line}")
