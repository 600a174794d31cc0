"""Which server a command asks: that of the flags' address, else the one that runs on the data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from openclaw_rl import config
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.processes import running

Url = Annotated[
    str | None,
    typer.Option(help="Of the server; else of the one that runs on the data folder, or as the settings say."),
]


def load(config_file: Path | None, flags: dict[str, Any], url: str | None) -> Settings:
    """The settings, with the address at which the server of their data folder really listens.

    What the flags say of the address stands, and `url` needs none. Raises ConfigError when they name a
    folder on which no server runs, NotYetError when it does not serve yet.
    """
    if url is not None and not url.strip():
        raise ConfigError("--url is empty; give the server's address, or leave it out")
    settings, _ = config.load(config_file, flags)
    if url is not None or flags.keys() & {"server.host", "server.port"}:
        return settings
    found = running.server_url(settings)
    if found is None:
        if "data_dir" in flags:
            raise ConfigError(
                f"no server runs on {settings.home}; start `openclaw-rl up` there, or give --url"
            )
        return settings
    parts = urlsplit(found)
    server = settings.server.model_copy(update={"host": parts.hostname, "port": parts.port})
    return settings.model_copy(update={"server": server})
