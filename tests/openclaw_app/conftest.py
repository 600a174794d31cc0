"""One server of ours with the embedded model for all tests, and an OpenClaw of its own for each that asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "processes"))
sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from forcing_proxy import Proxy, forcing_proxy
from real_openclaw import NODE, START_SECONDS, OpenClaw
from running_processes import House

from openclaw_rl.config import EMBEDDED_MODEL


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    assert NODE.exists(), "`make test-openclaw` installs the app and runs these tests"


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """`openclaw-rl up` with the embedded model: it judges by rules and does not train."""
    from openclaw_rl.policy.embedded import model_files

    model_files.resolve(EMBEDDED_MODEL, print)
    with House(tmp_path_factory.mktemp("server"), Path(EMBEDDED_MODEL)) as opened:
        opened.start("up", "learn.enabled=false", "model.dtype=auto", "engine.threads=0")
        opened.wait_until_ready(START_SECONDS)
        yield opened


@pytest.fixture(scope="session")
def proxy(house: House) -> Iterator[Proxy]:
    with forcing_proxy(house.url) as running:
        yield running


@pytest.fixture
def openclaw(tmp_path: Path) -> OpenClaw:
    """Installed and configured to be quiet; a test says what else, and starts it."""
    return OpenClaw(tmp_path / "openclaw")
