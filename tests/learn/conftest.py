"""Fixtures of the learner's tests: one tiny model for all of them, and an empty store for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from learnable_model import load_network, write_model

from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.store import Store

torch.set_num_threads(1)
# A busy machine is no failure; examples are cheap.
hypothesis.settings.register_profile("learn", deadline=None)
hypothesis.settings.load_profile("learn")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def network(model_folder: Path) -> Network:
    """The frozen model; an adapter's training leaves it as it is, so every test may use this one."""
    return load_network(model_folder)


@pytest.fixture(scope="session")
def template(model_folder: Path) -> ChatTemplate:
    return ChatTemplate.load(model_folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()
