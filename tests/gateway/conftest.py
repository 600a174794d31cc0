from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_gateway import RunningGateway, running_gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path) as running:
        yield running
