"""A recorder in front of an upstream, both behind real sockets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from other_server import OtherServer, other_server
from running_recorder import RunningRecorder, running_recorder


@pytest.fixture
def upstream() -> Iterator[OtherServer]:
    with other_server() as running:
        yield running


@pytest.fixture
def recorder(tmp_path: Path, upstream: OtherServer) -> Iterator[RunningRecorder]:
    with running_recorder(tmp_path, upstream.url) as running:
        yield running
