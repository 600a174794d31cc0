"""A tiny model on disk, loaded by us and by transformers, once for all tests of the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_runs import NEVER_STOP, PlainModel, StartEngine, load_network, running_engine
from tiny_model import make_tiny_model

from openclaw_rl.policy.embedded.engine import EmbeddedEngine
from openclaw_rl.policy.embedded.network import Network

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def plain(model_folder: Path) -> PlainModel:
    return PlainModel(model_folder)


@pytest.fixture(scope="session")
def network(model_folder: Path) -> Network:
    """Used by one engine at a time."""
    return load_network(model_folder)


@pytest.fixture
def start_engine(network: Network, model_folder: Path, tmp_path: Path) -> Iterator[StartEngine]:
    """Starts engines with settings of their own; all are shut down after the test."""
    with ExitStack() as engines:

        def start(stop_ids: frozenset[int] = NEVER_STOP, **options: Any) -> EmbeddedEngine:
            return engines.enter_context(
                running_engine(network, tmp_path, stop_ids, model_folder / "tokenizer.json", **options)
            )

        yield start


@pytest.fixture
def engine(start_engine: StartEngine) -> EmbeddedEngine:
    return start_engine()
