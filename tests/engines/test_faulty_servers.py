"""Engines on servers that answer wrongly: untested adapters, impossible tokens, errors in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_runs import PlainModel, prompt, written_version
from faulty_server import SIX, Faulty, ask, faulty, losing_answers_of

from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import EngineError


@pytest.fixture(params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest, model_folder: Path, tmp_path: Path) -> Iterator[Faulty]:
    with faulty(request.param, model_folder, tmp_path) as made:
        yield made


# A version that has not passed its test


def test_a_version_that_fails_its_test_after_a_restart_is_never_served(
    server: Faulty, network: Network, plain: Callable[[int], PlainModel]
) -> None:
    engine = server.engine()

    async def test() -> None:
        await engine.publish(written_version(network, server.folder, 1))
        server.state.restart()
        server.state.ignores_adapters = True
        for _ in range(3):
            with pytest.raises(EngineError, match="does not apply"):
                await ask(engine)
        with pytest.raises(EngineError, match="does not apply"):
            await engine.score(prompt(8), (5, 6))
        await asyncio.sleep(0.2)
        assert not any(name.endswith("-v1") for name in server.state.adapters), "it is unloaded again"
        server.state.ignores_adapters = False
        reply = await ask(engine)
        assert reply.version == 1
        assert reply.token_ids == plain(1).greedy(prompt(8), SIX.max_tokens)
        await engine.close()
        assert not server.state.adapters

    asyncio.run(test())


def test_a_version_whose_load_was_not_answered_is_tested_before_it_is_served(
    server: Faulty, network: Network
) -> None:
    engine = server.engine(wait_seconds=0)

    async def test() -> None:
        await engine.publish(written_version(network, server.folder, 1))
        server.state.restart()
        server.state.ignores_adapters = True
        server.instead[server.loads] = losing_answers_of(server.app)
        for _ in range(2):
            with pytest.raises(EngineError, match="cannot be reached"):
                await ask(engine)
        del server.instead[server.loads]
        with pytest.raises(EngineError, match="does not apply"):
            await ask(engine)
        await engine.close()
        assert not server.state.adapters

    asyncio.run(test())
