"""The engines that the suite runs on, each with what a test must know of it beyond the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine_runs import NEVER_STOP, load_network, new_engine
from fastapi import FastAPI
from sglang_stand_in import TinySglang, sglang_app
from tiny_server import Listening, TinyServer
from vllm_stand_in import TinyVllm, vllm_app

from openclaw_rl.config import Settings
from openclaw_rl.policy.engine import PolicyEngine
from openclaw_rl.policy.remote.engine import RemoteEngine
from openclaw_rl.policy.remote.server import InferenceServer
from openclaw_rl.policy.remote.sglang import SglangServer
from openclaw_rl.policy.remote.vllm import VllmServer


@dataclass
class House:
    """One engine, and where its versions lie."""

    engine: PolicyEngine
    folder: Path
    running: Callable[[], int]
    """Requests that the engine computes now."""
    keeps_seeds: bool = True
    reads_grammars: bool = True
    takes_models: bool = False
    """Whole models are versions too."""
    keeps_old: int = 0
    """Versions that stay loaded though nobody asks for them."""
    restart: Callable[[], None] | None = None
    """Start its server anew."""


OpenHouse = Callable[..., Any]


@contextmanager
def embedded(
    model: Path, folder: Path, stop_ids: frozenset[int] = NEVER_STOP, **options: Any
) -> Iterator[House]:
    engine = new_engine(load_network(model), folder, stop_ids, model / "tokenizer.json", **options)
    try:
        yield House(engine, folder, lambda: engine._scheduler.unfinished, takes_models=True, keeps_old=4)
    finally:
        engine.shut_down()


@contextmanager
def vllm_stand_in(
    model: Path, folder: Path, stop_ids: frozenset[int] = NEVER_STOP, **options: Any
) -> Iterator[House]:
    state = TinyVllm(model)
    with remote(state, vllm_app(state), VllmServer, model, folder, stop_ids, **options) as house:
        yield house


@contextmanager
def sglang_stand_in(
    model: Path,
    folder: Path,
    stop_ids: frozenset[int] = NEVER_STOP,
    **options: Any,
) -> Iterator[House]:
    state = TinySglang(model)
    with remote(state, sglang_app(state), SglangServer, model, folder, stop_ids, **options) as house:
        yield replace(house, keeps_seeds=False, reads_grammars=False)


@contextmanager
def remote(
    state: TinyServer,
    app: FastAPI,
    kind: Callable[[str], InferenceServer],
    model: Path,
    folder: Path,
    stop_ids: frozenset[int],
    **options: Any,
) -> Iterator[House]:
    """An engine on a stand-in of ours."""
    listening = Listening(app)

    def restart() -> None:
        listening.stop()
        state.restart()
        listening.start()

    try:
        engine = connected(kind(listening.url), model, folder, stop_ids, **options)
        yield House(engine, folder, lambda: state.running, restart=restart)
        asyncio.run(engine.close())
        assert not state.dead, "no file was taken away while the server needed it"
    finally:
        listening.stop()
        state.close()


def connected(
    server: InferenceServer, model: Path, folder: Path, stop_ids: frozenset[int] = NEVER_STOP, **options: Any
) -> RemoteEngine:
    settings = Settings(data_dir=folder, engine={"wait_seconds": 20, **options})

    async def connect() -> RemoteEngine:
        engine = RemoteEngine(server, model, stop_ids, settings, await server.context_length())
        await engine.start()
        return engine

    return asyncio.run(connect())


HOUSES: dict[str, OpenHouse] = {
    "embedded": embedded,
    "vllm": vllm_stand_in,
    "sglang": sglang_stand_in,
}
