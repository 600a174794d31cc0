"""Versions in one engine: swapped under running requests, refused when broken, unloaded when old."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_versions import BREAKS
from engine_runs import (
    GREEDY,
    PlainModel,
    ask,
    collect,
    new_engine,
    prompt,
    publish,
    random_adapter,
    version_at,
    written_version,
)
from tiny_model import llama, save_model

from openclaw_rl.config import Settings
from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.engine import KEPT_VERSIONS, EmbeddedEngine
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import BadVersionError, EngineError, UnknownVersionError

LONG = Sampling(temperature=0.8, max_tokens=120, seed=5)


def test_the_model_and_versions_are_loaded_without_helpers(
    network: Network, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would stay, and too many of them make the engine's slow."""
    seen: list[int] = []
    load_network, load_adapter = Network.load, Adapter.load

    def network_seen(*arguments: Any, **named: Any) -> Network:
        seen.append(torch.get_num_threads())
        return load_network(*arguments, **named)

    def adapter_seen(*arguments: Any) -> Adapter:
        seen.append(torch.get_num_threads())
        return load_adapter(*arguments)

    monkeypatch.setattr(Network, "load", network_seen)
    monkeypatch.setattr(Adapter, "load", adapter_seen)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    cores = CoreShare(tmp_path, "server", limit=1)
    engine = EmbeddedEngine.load(Settings(data_dir=tmp_path), model_folder, frozenset(), cores)
    try:
        asyncio.run(engine.publish(written_version(network, tmp_path, 1)))
        assert torch.get_num_threads() == 3
    finally:
        engine.shut_down()
        torch.set_num_threads(before)
    assert seen == [1, 1]


def test_a_running_request_finishes_on_its_version_while_new_ones_get_the_published_one(
    engine: EmbeddedEngine, network: Network, model_folder: Path, plain: PlainModel, tmp_path: Path
) -> None:
    versions = [written_version(network, tmp_path, number) for number in (1, 2)]
    merged = [PlainModel(model_folder, random_adapter(network, seed=number)) for number in (1, 2)]

    async def swap_while_they_run() -> None:
        running = [engine.generate(prompt(30), LONG)]
        collecting = [asyncio.create_task(collect(running[0]))]
        for version in versions:
            await engine.publish(version)
            assert engine.serving_version == version.number
            running.append(engine.generate(prompt(30 + version.number), LONG))
            collecting.append(asyncio.create_task(collect(running[-1])))
        # All three are still running: their versions were decoded in the same steps.
        assert not any(task.done() for task in collecting)
        replies = await asyncio.gather(*collecting)
        assert [reply.version for reply in replies] == [0, 1, 2]
        for number, (model, reply) in enumerate(zip([plain, *merged], replies, strict=True)):
            assert len(reply.token_ids) == 120
            model.assert_gave(prompt(30 + number), LONG, reply)

    asyncio.run(swap_while_they_run())


def test_several_requests_of_two_adapters_decode_at_once(
    engine: EmbeddedEngine, network: Network, model_folder: Path, tmp_path: Path
) -> None:
    for number in (1, 2):
        publish(engine, written_version(network, tmp_path, number))
    merged = {number: PlainModel(model_folder, random_adapter(network, seed=number)) for number in (1, 2)}

    async def together() -> None:
        asked = [(number, prompt(9 * turn + number)) for turn in range(3) for number in (1, 2)]
        running = [engine.generate(prompt_ids, LONG, number) for number, prompt_ids in asked]
        replies = await asyncio.gather(*(collect(generation) for generation in running))
        for (number, prompt_ids), reply in zip(asked, replies, strict=True):
            merged[number].assert_gave(prompt_ids, LONG, reply)

    asyncio.run(together())


def test_a_version_can_be_loaded_without_serving(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    publish(engine, written_version(network, tmp_path, 1), serve=False)
    assert engine.serving_version == 0
    assert ask(engine, prompt(5), GREEDY, version=1).version == 1


def test_going_back_to_the_base_needs_no_files(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    before = ask(engine, prompt(20), GREEDY)
    publish(engine, written_version(network, tmp_path, 1))
    publish(engine, version_at(None, 0))
    assert ask(engine, prompt(20), GREEDY).token_ids == before.token_ids


def test_old_versions_are_unloaded_but_not_under_a_request(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    async def publish_many() -> None:
        await engine.publish(written_version(network, tmp_path, 1))
        slow = engine.generate(prompt(10), Sampling(max_tokens=450, seed=1))
        last = KEPT_VERSIONS + 4
        for number in range(2, last + 1):
            await engine.publish(written_version(network, tmp_path, number))
        kept = [number for number in range(last + 1) if _is_loaded(engine, number)]
        assert kept == [0, 1, *range(last - KEPT_VERSIONS, last + 1)]
        slow.cancel()

    asyncio.run(publish_many())


def _is_loaded(engine: EmbeddedEngine, number: int) -> bool:
    try:
        engine.generate(prompt(3), Sampling(max_tokens=1), number).cancel()
    except UnknownVersionError:
        return False
    return True


def test_a_whole_model_is_a_version_too(engine: EmbeddedEngine, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "000001", llama(initializer_range=0.2, eos_token_id=2))
    publish(engine, version_at(folder, 1))
    reply = ask(engine, prompt(30), GREEDY)
    assert reply.token_ids == PlainModel(folder).greedy(prompt(30), GREEDY.max_tokens)


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda each: each.__name__.strip("_"))
def test_a_broken_version_is_refused_and_the_old_one_serves(
    engine: EmbeddedEngine, network: Network, tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    publish(engine, written_version(network, tmp_path, 1))
    before = ask(engine, prompt(20), GREEDY)
    broken = written_version(network, tmp_path, 2)
    break_it(tmp_path / "000002")
    with pytest.raises(BadVersionError):
        publish(engine, broken)
    assert engine.serving_version == 1
    assert ask(engine, prompt(20), GREEDY).token_ids == before.token_ids
    with pytest.raises(UnknownVersionError):
        ask(engine, prompt(20), GREEDY, version=2)


def test_weights_of_which_one_bit_has_changed_since_they_were_recorded_are_refused(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    written = written_version(network, tmp_path, 2)
    weights = tmp_path / "000002" / "adapter_model.safetensors"
    recorded = replace(written, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    with pytest.raises(BadVersionError, match="hash"):
        publish(engine, recorded)
    changed[-1] ^= 1
    weights.write_bytes(changed)
    publish(engine, recorded)
    assert engine.serving_version == 2


def test_a_file_that_cannot_be_read_just_now_is_no_fault_of_its_version(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    version = written_version(network, tmp_path, 1)
    weights = tmp_path / "000001" / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    weights.mkdir()  # reading it fails, and not because it is missing
    with pytest.raises(EngineError) as failed:
        publish(engine, version)
    assert not isinstance(failed.value, BadVersionError)
    assert engine.serving_version == 0
    weights.rmdir()
    weights.write_bytes(whole)
    publish(engine, version)
    assert engine.serving_version == 1


def test_a_disk_that_is_not_there_is_no_fault_of_the_versions_on_it(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match="is missing") as failed:
        publish(engine, version_at(tmp_path / "unmounted" / "000001", 1))
    assert not isinstance(failed.value, BadVersionError)


def test_a_version_without_files_is_refused(engine: EmbeddedEngine) -> None:
    with pytest.raises(EngineError):
        publish(engine, version_at(None, 3))


def test_a_publication_that_nobody_waits_for_any_more_does_not_end_serving(
    engine: EmbeddedEngine, network: Network, tmp_path: Path
) -> None:
    version = written_version(network, tmp_path, 1)

    async def cancel_at_every_moment() -> None:
        for wait in range(40):
            publishing = asyncio.create_task(engine.publish(version))
            for _ in range(wait % 8):
                await asyncio.sleep(0)
            publishing.cancel()
            await asyncio.wait({publishing})

    asyncio.run(cancel_at_every_moment())
    assert len(ask(engine, prompt(5), GREEDY).token_ids) == 24


def test_a_version_that_several_ask_for_at_once_is_read_once(
    engine: EmbeddedEngine, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = written_version(network, tmp_path, 1)
    read: list[Path] = []
    load = Adapter.load

    def slowly(folder: Path, layers: Any) -> Adapter:
        read.append(folder)
        time.sleep(0.2)
        return load(folder, layers)

    monkeypatch.setattr(Adapter, "load", slowly)

    async def all_at_once() -> None:
        await asyncio.gather(*(engine.publish(version, serve=bool(n % 2)) for n in range(6)))

    asyncio.run(all_at_once())
    assert read == [tmp_path / "000001"]
    assert engine.serving_version == 1


def test_whole_models_that_are_asked_for_at_once_are_read_one_after_another(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [version_at(save_model(tmp_path / f"{n:06d}", llama()), n) for n in (1, 2, 3)]
    at_once: list[int] = [0, 0]
    load = Network.load

    def watched(*arguments: Any, **named: Any) -> Network:
        at_once[0] += 1
        at_once[1] = max(at_once)
        try:
            return load(*arguments, **named)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(Network, "load", watched)

    async def publish_all() -> None:
        await asyncio.gather(*(engine.publish(version, serve=False) for version in versions))

    asyncio.run(publish_all())
    assert at_once == [0, 1]
    for version in versions:
        assert len(ask(engine, prompt(5), GREEDY, version=version.number).token_ids) == 24


def test_a_fresh_adapter_changes_nothing_and_survives_its_file(network: Network, tmp_path: Path) -> None:
    adapter = Adapter.fresh(network.adapted, rank=4, alpha=8, seed=3)
    keep = torch.arange(10)
    assert torch.equal(
        network.packed_logits([prompt(10)], keep), network.packed_logits([prompt(10)], keep, adapter)
    )
    adapter.save(tmp_path, "tiny")
    loaded = Adapter.load(tmp_path, network.adapted)
    assert loaded.scale == adapter.scale == 2
    for name, (down, up) in adapter.factors.items():
        assert torch.equal(loaded.factors[name][0], down)
        assert torch.equal(loaded.factors[name][1], up)


def test_a_closed_engine_fails_what_runs_and_takes_nothing_more(network: Network, tmp_path: Path) -> None:
    engine = new_engine(network, tmp_path)

    async def close_while_running() -> None:
        running = engine.generate(prompt(10), Sampling(max_tokens=480))
        await anext(aiter(running))
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await collect(running)
        with pytest.raises(EngineError, match="closing"):
            engine.generate(prompt(10), GREEDY)
        with pytest.raises(EngineError, match="closing"):
            await engine.publish(version_at(None, 0))

    asyncio.run(close_while_running())
