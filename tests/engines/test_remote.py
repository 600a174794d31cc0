"""Engines on servers when something goes wrong: cut streams, full or restarted servers, wrong flags.

The servers are stand-ins, so that they can fail when a test wants it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from engine_runs import GREEDY, Reply, collect, prompt, random_adapter, version_at, written_version
from fastapi import FastAPI
from houses import connected
from running_processes import eventually
from sglang_stand_in import TinySglang, sglang_app
from tiny_server import Listening, TinyServer
from vllm_stand_in import TinyVllm, vllm_app

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import BadVersionError, EngineError, SampledToken
from openclaw_rl.policy.remote.engine import RemoteEngine
from openclaw_rl.policy.remote.http import event_lines
from openclaw_rl.policy.remote.server import InferenceServer, UnreachableError
from openclaw_rl.policy.remote.sglang import SglangServer
from openclaw_rl.policy.remote.versions import PREFIX
from openclaw_rl.policy.remote.vllm import VllmServer
from openclaw_rl.policy.self_test import PROBES

SHORT = Sampling(temperature=0.8, max_tokens=12, seed=5)


@dataclass
class Kind:
    """One kind of server and its stand-in."""

    state: Callable[[Path], TinyServer]
    app: Callable[..., FastAPI]
    server: Callable[..., InferenceServer]


KINDS = {
    "vllm": Kind(TinyVllm, vllm_app, VllmServer),
    "sglang": Kind(TinySglang, sglang_app, SglangServer),
}


@dataclass
class Setup:
    state: TinyServer
    listening: Listening
    kind: Kind
    model: Path
    folder: Path

    def engine(self, *, key: str = "", **options: object) -> RemoteEngine:
        """One that is connected; several may be, one after the other."""
        return connected(self.kind.server(self.listening.url, key), self.model, self.folder, **options)


@contextmanager
def setup(kind: Kind, model: Path, folder: Path, *key: str) -> Iterator[Setup]:
    state = kind.state(model)
    listening = Listening(kind.app(state, *key))
    try:
        yield Setup(state, listening, kind, model, folder)
    finally:
        listening.stop()
    assert not state.dead


@pytest.fixture(params=KINDS)
def remote(request: pytest.FixtureRequest, model_folder: Path, tmp_path: Path) -> Iterator[Setup]:
    with setup(KINDS[request.param], model_folder, tmp_path) as made:
        yield made


@pytest.fixture
def on_vllm(model_folder: Path, tmp_path: Path) -> Iterator[Setup]:
    with setup(KINDS["vllm"], model_folder, tmp_path) as made:
        yield made


async def ask(engine: RemoteEngine, sampling: Sampling = SHORT, version: int | None = None) -> Reply:
    return await collect(engine.generate(prompt(20), sampling, version))


# Requests


@pytest.mark.parametrize("fault", ["cut_after", "gives_up_after"])
def test_a_reply_that_breaks_off_is_an_error_and_no_sample(remote: Setup, fault: str) -> None:
    engine = remote.engine()

    async def test() -> None:
        setattr(remote.state, fault, 3)
        seen: list[SampledToken] = []

        async def read() -> None:
            async for token in engine.generate(prompt(20), SHORT):
                seen.append(token)  # noqa: PERF401 - a comprehension would lose them

        with pytest.raises(EngineError) as failed:
            await read()
        assert not isinstance(failed.value, UnreachableError)
        assert len(seen) in (2, 3)
        assert not any(token.finish for token in seen)
        setattr(remote.state, fault, None)
        assert len((await ask(engine)).token_ids) == SHORT.max_tokens
        # The server notices a moment after its client.
        await asyncio.to_thread(eventually, lambda: not remote.state.running)

    asyncio.run(test())


def test_a_request_that_was_lost_before_its_first_token_is_asked_again(remote: Setup) -> None:
    engine = remote.engine()

    async def test() -> None:
        whole = await ask(engine, GREEDY)
        remote.state.cut_after = 0
        begun = remote.state.begun
        asking = asyncio.create_task(ask(engine, GREEDY))
        while remote.state.begun < begun + 2:
            await asyncio.sleep(0.05)
        assert not asking.done()
        remote.state.cut_after = None
        assert (await asking).token_ids == whole.token_ids

    asyncio.run(test())


def test_a_server_that_is_away_is_waited_for_as_long_as_the_settings_say(remote: Setup) -> None:
    engine = remote.engine(wait_seconds=0.1)

    async def test() -> None:
        whole = await ask(engine, GREEDY)
        await asyncio.to_thread(remote.listening.stop)
        with pytest.raises(EngineError, match="cannot be reached"):
            await ask(engine)
        engine._wait_seconds = 20
        waiting = asyncio.create_task(ask(engine, GREEDY))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(remote.listening.start)
        assert (await waiting).token_ids == whole.token_ids

    asyncio.run(test())


def test_a_server_that_is_not_ready_is_asked_again(on_vllm: Setup) -> None:
    engine = on_vllm.engine()

    async def test() -> None:
        on_vllm.state.busy = 1
        assert len((await ask(engine)).token_ids) == SHORT.max_tokens

    asyncio.run(test())


def test_events_that_tell_only_what_is_new_are_read_too(model_folder: Path, tmp_path: Path) -> None:
    with setup(KINDS["sglang"], model_folder, tmp_path) as made:
        assert isinstance(made.state, TinySglang)
        engine = made.engine()
        sampling = replace(GREEDY, top_logprobs=2)
        whole = asyncio.run(ask(engine, sampling))
        made.state.incremental = True
        assert asyncio.run(ask(engine, sampling)) == whole


def test_what_vllm_cannot_tell_the_full_log_probs_of_is_not_learned_from(on_vllm: Setup) -> None:
    engine = on_vllm.engine()
    assert engine.unlearnable(Sampling(temperature=0.7)) == ""
    assert engine.unlearnable(Sampling(temperature=0)) == ""
    assert "top-p" in engine.unlearnable(Sampling(top_p=0.9))
    assert "top-p" in engine.unlearnable(Sampling(top_k=20))
    assert "0.01" in engine.unlearnable(Sampling(temperature=0.005))


# Connecting


def test_log_probs_of_before_the_temperature_are_found_out_at_the_start(remote: Setup) -> None:
    remote.state.tells_raw = True
    with pytest.raises(EngineError, match="processed_logprobs"):
        remote.engine()


def test_a_server_without_adapters_is_found_out_at_the_start(remote: Setup) -> None:
    remote.state.most_rank = 0
    with pytest.raises(EngineError, match="--max-lora-rank"):
        remote.engine()


def test_a_key_that_is_wanted_is_sent_and_asked_for(model_folder: Path, tmp_path: Path) -> None:
    with setup(KINDS["vllm"], model_folder, tmp_path, "sesame") as made:
        engine = made.engine(key="sesame")
        assert len(asyncio.run(ask(engine)).token_ids) == SHORT.max_tokens
        with pytest.raises(EngineError, match=r"engine\.api_key"):
            made.engine(key="other")


@pytest.mark.parametrize("kind", [VllmServer, SglangServer])
def test_another_kind_of_server_is_told_so(
    kind: Callable[[str], InferenceServer], model_folder: Path, tmp_path: Path
) -> None:
    app = FastAPI()
    app.get("/v1/models")(lambda: {"data": "no list"})
    listening = Listening(app)
    try:
        with pytest.raises(EngineError, match="right kind"):
            connected(kind(listening.url), model_folder, tmp_path)
    finally:
        listening.stop()


def test_what_an_earlier_process_left_is_unloaded_and_what_others_loaded_is_not(
    remote: Setup, network: Network
) -> None:
    asyncio.run(remote.engine().publish(written_version(network, remote.folder, 1)))
    left = set(remote.state.adapters)
    assert left
    remote.state.load("somebody-elses", str(remote.folder / "000001"))
    engine = remote.engine()
    assert not left & set(remote.state.adapters)
    assert "somebody-elses" in remote.state.adapters
    asyncio.run(engine.close())
    assert set(remote.state.adapters) == {"somebody-elses"}
    assert not (remote.folder / "served").exists()


# Versions


def test_every_version_answers_the_probes_before_it_serves(remote: Setup, network: Network) -> None:
    engine = remote.engine()
    for number in (1, 2):
        before = len(remote.state.asked_by)
        asyncio.run(engine.publish(written_version(network, remote.folder, number)))
        asked_by = remote.state.asked_by[before:]
        assert len(asked_by) == PROBES
        assert all(adapter and adapter.endswith(f"-v{number}") for adapter in asked_by)


def test_a_server_that_does_not_apply_an_adapter_never_serves_it(remote: Setup, network: Network) -> None:
    engine = remote.engine()
    loaded = set(remote.state.adapters)

    async def test() -> None:
        remote.state.ignores_adapters = True
        version = written_version(network, remote.folder, 1)
        with pytest.raises(EngineError, match="does not apply") as failed:
            await engine.publish(version)
        assert not isinstance(failed.value, BadVersionError)  # tried again, and not rejected
        assert engine.serving_version == 0
        await asyncio.sleep(0.2)
        assert set(remote.state.adapters) == loaded
        remote.state.ignores_adapters = False
        await engine.publish(version)
        assert engine.serving_version == 1

    asyncio.run(test())


def test_an_adapter_that_changes_next_to_nothing_need_not_be_felt(remote: Setup, network: Network) -> None:
    engine = remote.engine()
    remote.state.ignores_adapters = True
    folder = remote.folder / "000001"
    folder.mkdir()
    random_adapter(network, seed=1, size=0.002).save(folder, "tiny")
    asyncio.run(engine.publish(version_at(folder, 1)))
    assert engine.serving_version == 1


def test_a_server_that_refuses_an_adapter_is_told_how_to_be_started(remote: Setup, network: Network) -> None:
    engine = remote.engine()
    version = written_version(network, remote.folder, 1)
    remote.state.most_rank = 2
    with pytest.raises(EngineError, match="--max-lora-rank") as failed:
        asyncio.run(engine.publish(version))
    assert not isinstance(failed.value, BadVersionError)
    remote.state.most_rank = 8
    asyncio.run(engine.publish(version))
    assert engine.serving_version == 1


def test_a_version_is_served_on_though_its_own_folder_is_deleted(remote: Setup, network: Network) -> None:
    engine = remote.engine()

    async def test() -> None:
        await engine.publish(written_version(network, remote.folder, 1))
        whole = await ask(engine, GREEDY)
        shutil.rmtree(remote.folder / "000001")
        remote.state.restart()
        assert (await ask(engine, GREEDY)).token_ids == whole.token_ids

    asyncio.run(test())


def test_the_files_of_versions_do_not_pile_up(remote: Setup, network: Network) -> None:
    engine = remote.engine()

    async def test() -> None:
        for number in range(1, 7):
            await engine.publish(written_version(network, remote.folder, number))
            await ask(engine, replace(SHORT, max_tokens=2))
        left = [folder.name for folder in (remote.folder / "served").iterdir()]
        assert len(left) <= 3  # the serving one, the one before, and the base
        assert all(name.startswith(PREFIX) for name in left)

    asyncio.run(test())


def test_one_restart_loads_a_version_once_however_many_ask(remote: Setup, network: Network) -> None:
    engine = remote.engine()

    async def test() -> None:
        await engine.publish(written_version(network, remote.folder, 1))
        whole = await ask(engine, GREEDY)
        remote.state.restart()
        loads = len(remote.state.slots)
        replies = await asyncio.gather(*(ask(engine, GREEDY) for _ in range(5)))
        assert all(reply.token_ids == whole.token_ids for reply in replies)
        assert len(remote.state.slots) == loads + 1
        remote.state.restart()
        scored = await engine.score(prompt(20), tuple(whole.token_ids))
        assert [token.logprob for token in scored] == pytest.approx(whole.logprobs, abs=1e-3)

    asyncio.run(test())


def test_separators_of_unicode_in_a_reply_end_no_line_of_its_stream() -> None:
    said = 'data: {"text": "a\u2028b\x85c"}\r\n\ndata: [DONE]\n\n'.encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(said), 5):
            yield said[start : start + 5]

    async def lines() -> list[str]:
        return [line async for line in event_lines(httpx2.Response(200, content=pieces()))]

    assert [line for line in asyncio.run(lines()) if line] == [
        'data: {"text": "a\u2028b\x85c"}',
        "data: [DONE]",
    ]
