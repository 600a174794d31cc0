"""The gateway of the gateway's tests, for all faults that a client meets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("gateway", "embedded", "judge")]

from running_gateway import RunningGateway, running_gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path) as running:
        yield running
