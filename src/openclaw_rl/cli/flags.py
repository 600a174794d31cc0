"""The flags that several commands have, and what they say as settings.

Knows which setting each flag stands for; knows no command.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from openclaw_rl.config import ConfigError, is_secret

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; else ./openclaw-rl.toml.")]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="Store, versions and process files.")]
Model = Annotated[str | None, typer.Option("--model", help="A Hugging Face name or a folder.")]
Parent = Annotated[int | None, typer.Option(hidden=True, help="End with this process.")]
Method = Annotated[
    str | None, typer.Option("--method", help="binary, opd, opd_top_k, combined, hybrid or sft.")
]
Judge = Annotated[str | None, typer.Option("--judge", help="rules, self, or the URL of a server.")]
Upstream = Annotated[
    str | None, typer.Option("--upstream", help="Record only, in front of the server at this base URL.")
]
Engine = Annotated[str | None, typer.Option("--engine", help="embedded, vllm or sglang.")]
EngineUrl = Annotated[
    str | None, typer.Option("--engine-url", help="Where vLLM or SGLang runs; else vLLM is started here.")
]
Host = Annotated[str | None, typer.Option("--host", help="Anything but loopback needs api_keys.")]
Port = Annotated[int | None, typer.Option("--port", help="0 takes a free port.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting of `openclaw-rl config`, as NAME=VALUE."),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the numbers here.")]
Compare = Annotated[Path | None, typer.Option("--compare", help="An earlier result; shows what changed.")]


_FLAGS = {
    "data_dir": "--data-dir",
    "model.name": "--model",
    "learn.method": "--method",
    "judge.kind": "--judge",
    "server.host": "--host",
    "server.port": "--port",
    "upstream.url": "--upstream",
    "engine.kind": "--engine",
    "engine.url": "--engine-url",
}


def as_settings(
    assignments: list[str] | None = None,
    *,
    data_dir: str | None = None,
    model: str | None = None,
    method: str | None = None,
    judge: str | None = None,
    host: str | None = None,
    port: int | None = None,
    upstream: str | None = None,
    engine: str | None = None,
    engine_url: str | None = None,
) -> dict[str, Any]:
    """The flags that were given, by dotted setting name. Raises ConfigError for a `--set` without "="."""
    given: dict[str, Any] = {}
    for assignment in assignments or []:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"--set {assignment}: write NAME=VALUE, such as --set learn.batch_size=8")
        given[name.strip()] = value.strip()
    values = (data_dir, model, method, judge, host, port, upstream, engine, engine_url)
    named = zip(_FLAGS, values, strict=True)
    return {**given, **{name: value for name, value in named if value is not None}}


def as_arguments(config_file: Path | None, settings: dict[str, Any]) -> list[str]:
    """The same settings as arguments for a child process."""
    arguments = [] if config_file is None else ["--config", str(config_file)]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


def as_typed(command: str, config_file: Path | None, settings: dict[str, Any]) -> str:
    """The command line that gives the same settings once more; secrets are left for its reader to fill in."""
    words = ["openclaw-rl", command]
    words += [] if config_file is None else ["--config", str(config_file)]
    for name, value in settings.items():
        shown = "…" if is_secret(name) and value else value
        words += [_FLAGS[name], str(shown)] if name in _FLAGS else ["--set", f"{name}={shown}"]
    return shlex.join(words)
