"""Real processes of ours on a tiny model, each test with a data folder and port of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "embedded"))
sys.path.append(str(Path(__file__).parents[1] / "engines"))

from running_processes import House
from tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def house(model_folder: Path, tmp_path: Path) -> Iterator[House]:
    """Processes started through it are ended after the test."""
    with House(tmp_path, model_folder) as opened:
        yield opened


@pytest.fixture(scope="session")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a context that tools fit into."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "roomy", context=2048)


@pytest.fixture
def roomy_house(roomy_model: Path, tmp_path: Path) -> Iterator[House]:
    with House(tmp_path, roomy_model) as opened:
        yield opened
