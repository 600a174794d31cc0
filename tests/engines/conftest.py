"""One tiny model for all engines, and plain passes of transformers to hold them against."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "embedded"))
sys.path.append(str(Path(__file__).parents[1] / "processes"))

from engine_runs import PlainModel, load_network, random_adapter
from houses import HOUSES, House
from real_vllm import RealVllm, real_vllm
from tiny_model import llama, make_tiny_model

from openclaw_rl.policy.embedded.network import Network

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 32 numbers: vLLM has no kernel for smaller ones."""
    config = llama(hidden_size=128, head_dim=32, eos_token_id=2)
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", config)


@pytest.fixture(scope="session")
def network(model_folder: Path) -> Network:
    """Of which versions are made; no engine uses it."""
    return load_network(model_folder)


@pytest.fixture(scope="session")
def plain(model_folder: Path, network: Network) -> Callable[[int], PlainModel]:
    """The model of a version: 0 is the base, another has the adapter that `written_version` writes."""
    made: dict[int, PlainModel] = {}

    def of(number: int) -> PlainModel:
        if number not in made:
            adapter = random_adapter(network, seed=number) if number else None
            made[number] = PlainModel(model_folder, adapter)
        return made[number]

    return of


@pytest.fixture(scope="session")
def vllm(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """The real server, for all tests that want it."""
    server = RealVllm(model_folder, tmp_path_factory.mktemp("vllm"))
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(params=[*HOUSES, pytest.param("real_vllm", marks=pytest.mark.vllm)])
def open_house(
    request: pytest.FixtureRequest, model_folder: Path, tmp_path: Path
) -> Iterator[Callable[..., House]]:
    """Opens the engine under test with settings of its own; closed after the test."""
    if request.param == "real_vllm":
        kind = partial(real_vllm, request.getfixturevalue("vllm"))
    else:
        kind = HOUSES[request.param]
    with ExitStack() as houses:

        def opened(**options: Any) -> House:
            house: House = houses.enter_context(kind(model_folder, tmp_path, **options))
            return house

        yield opened


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    return open_house()
