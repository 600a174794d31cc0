"""The real vLLM, started as `openclaw-rl up --engine vllm` starts it, in an environment of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from engine_runs import NEVER_STOP
from houses import House, connected
from running_processes import eventually

from openclaw_rl.config import Settings
from openclaw_rl.evals.rivals import CannotInstallError, python_with_vllm
from openclaw_rl.policy.embedded.model_files import cache_folder
from openclaw_rl.policy.remote.vllm import VllmServer
from openclaw_rl.processes.keeper import SOON_SECONDS
from openclaw_rl.processes.local_vllm import MODULE, LocalVllm

START_SECONDS = 600.0
"""On a busy machine, the first time."""


class RealVllm:
    def __init__(self, model: Path, folder: Path) -> None:
        try:
            python = python_with_vllm(cache_folder() / "rivals", print)
        except CannotInstallError as error:
            pytest.skip(f"THE REAL vLLM IS NOT TESTED: {error}")
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
        settings = Settings(
            data_dir=folder,
            model={"dtype": "float32", "device": "cpu"},
            learn={"lora_rank": 8},
            engine={"kind": "vllm", "command": f"{python} -m {MODULE}"},
        )
        self._started = time.monotonic()
        self._local = LocalVllm(settings, model)
        self.url, self.api_key = self._local.url, self._local.api_key
        self._wait()

    def _wait(self) -> None:
        def is_ready() -> bool:
            assert self._local.is_kept, self._local.log.read_text(encoding="utf-8")[-3000:]
            try:
                return httpx2.get(f"{self.url}/health").status_code == 200
            except httpx2.HTTPError:
                return False

        eventually(is_ready, START_SECONDS, pause=0.5)

    def running(self) -> int:
        found = httpx2.get(f"{self.url}/metrics").text
        counts = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)", found, re.MULTILINE)
        return int(sum(map(float, counts)))

    def restart(self) -> None:
        """Kill it; its keeper starts it anew."""
        time.sleep(max(0.0, self._started + SOON_SECONDS + 1 - time.monotonic()))
        keeper = self._local._keeper.pid
        found = subprocess.run(["pgrep", "-P", str(keeper)], capture_output=True, text=True, check=True)
        os.killpg(int(found.stdout), signal.SIGKILL)
        self._started = time.monotonic()
        self._wait()

    def end(self) -> None:
        self._local.end()


@contextmanager
def real_vllm(
    server: RealVllm, model: Path, folder: Path, stop_ids: frozenset[int] = NEVER_STOP, **options: Any
) -> Iterator[House]:
    options = {"wait_seconds": 60, **options}
    engine = connected(VllmServer(server.url, server.api_key), model, folder, stop_ids, **options)
    yield House(engine, folder, server.running, restart=server.restart)
    asyncio.run(engine.close())
