"""The engine that the settings name, ready for requests, and ended with everything that belongs to it.

Knows how each kind is made; knows no requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.engine import EngineError, PolicyEngine
from openclaw_rl.policy.remote.server import InferenceServer, UnreachableError

if TYPE_CHECKING:
    from openclaw_rl.processes.local_vllm import LocalVllm

START_SECONDS = 900.0
"""A server of our own may take so long to load a model."""

log = logging.getLogger(__name__)


def check(settings: Settings) -> None:
    """Raises ConfigError for engine settings that cannot work, before anything is loaded."""
    engine = settings.engine
    if engine.kind == "embedded":
        if engine.url:
            raise ConfigError("engine.url names a server; say with --engine whether it is vllm or sglang")
        return
    if settings.learn.full_fine_tuning:
        raise ConfigError(
            f"learn.full_fine_tuning makes whole models, and {engine.kind} is given adapters: "
            f"set it to false, or take --engine embedded"
        )
    if engine.url:
        if not _is_base_url(engine.url):
            raise ConfigError(f"engine.url = {engine.url!r} is no base URL; write http://127.0.0.1:8000")
    elif engine.kind == "sglang":
        raise ConfigError("SGLang is not started here: start it (docs/engines.md), and set --engine-url")
    else:
        from openclaw_rl.processes.local_vllm import command_of

        command_of(settings)


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
        httpx2.URL(url)  # which refuses what urlsplit does not look at
    except (ValueError, httpx2.InvalidURL):
        return False
    is_whole = bool(parts.hostname) and port != 0 and not any(map(str.isspace, url))
    return parts.scheme in ("http", "https") and is_whole


def server_at(settings: Settings, url: str, api_key: str) -> InferenceServer:
    """The server of `engine.kind` at a URL."""
    if settings.engine.kind == "sglang":
        from openclaw_rl.policy.remote.sglang import SglangServer

        return SglangServer(url, api_key)
    from openclaw_rl.policy.remote.vllm import VllmServer

    return VllmServer(url, api_key)


@contextmanager
def running_engine(settings: Settings, folder: Path, template: ChatTemplate) -> Iterator[PolicyEngine]:
    """The engine on the model in `folder`. Raises ConfigError when it cannot be had."""
    check(settings)
    if settings.engine.kind == "embedded":
        from openclaw_rl.policy.embedded.cores import CoreShare
        from openclaw_rl.policy.embedded.engine import EmbeddedEngine

        cores = CoreShare(settings.home, "server", settings.engine.threads)
        embedded = EmbeddedEngine.load(settings, folder, template.stop_ids, cores)
        try:
            yield embedded
        finally:
            embedded.shut_down()
        return
    with _server(settings, folder) as (server, local):
        engine = asyncio.run(_connected(server, local, settings, folder, template.stop_ids))
        if local is not None:
            local.end_us_with_it()
        try:
            yield engine
        finally:
            asyncio.run(engine.close())


@contextmanager
def _server(settings: Settings, folder: Path) -> Iterator[tuple[InferenceServer, LocalVllm | None]]:
    """The server at engine.url, or one that is started here and ended."""
    if settings.engine.url:
        yield server_at(settings, settings.engine.url, settings.engine.api_key.get_secret_value()), None
        return
    from openclaw_rl.processes.local_vllm import LocalVllm

    local = LocalVllm(settings, folder)
    log.info("starting vLLM; it writes to %s", local.log)
    try:
        yield server_at(settings, local.url, local.api_key), local
    finally:
        local.end()


async def _connected(
    server: InferenceServer,
    local: LocalVllm | None,
    settings: Settings,
    folder: Path,
    stop_ids: frozenset[int],
) -> PolicyEngine:
    """The engine, once its server answers. Raises ConfigError."""
    from openclaw_rl.policy.remote.engine import LEAST_SECONDS, RemoteEngine

    seconds = settings.engine.wait_seconds if local is None else START_SECONDS
    deadline = time.monotonic() + seconds
    told = False
    while True:
        try:
            context_length = await server.context_length()
            engine = RemoteEngine(server, folder, stop_ids, settings, context_length)
            # A server may answer the one and not the other: a port that somebody forwards to nowhere.
            async with asyncio.timeout(max(deadline - time.monotonic(), LEAST_SECONDS)):
                await engine.start()
        except TimeoutError:
            raise ConfigError(
                f"{server.name} did not answer a first request within {max(seconds, LEAST_SECONDS):.0f} s: "
                f"see its log, or set the right --engine-url, or a longer engine.wait_seconds"
            ) from None
        except UnreachableError as error:
            if local is not None and not local.is_kept:
                raise ConfigError(f"vLLM ended while it started; see {local.log}") from None
            if time.monotonic() > deadline:
                raise ConfigError(f"{error}: start it, or set the right --engine-url") from None
            if not told:
                log.info("waiting for %s", server.name)
                told = True
            await asyncio.sleep(0.5)
        except EngineError as error:
            raise ConfigError(str(error)) from None
        else:
            return engine
