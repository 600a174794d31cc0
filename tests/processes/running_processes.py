"""The commands as processes: started, waited for, killed, and looked at through their store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import httpx2

from openclaw_rl.config import ENVIRONMENT_PREFIX
from openclaw_rl.model import TurnState
from openclaw_rl.store import Store

Found = TypeVar("Found")

START_SECONDS = 180.0
"""Deadline for importing PyTorch and loading a tiny model, on a busy machine."""


def eventually(look: Callable[[], Found], seconds: float = 30.0, pause: float = 0.02) -> Found:
    """What `look` returns once it is true; fails the test when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class House:
    """One data folder and all processes that work on it."""

    def __init__(self, folder: Path, model_folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.model_folder = model_folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx2.Client(base_url=self.url, timeout=20)
        self._store: Store | None = None
        self._processes: list[subprocess.Popen[str]] = []
        self._logs = 0

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = Store.open(self.data / "store.sqlite")
        return self._store

    def start(
        self, command: str, *settings: str, port: int | None = None, data: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start serve, learn or up; `settings` are NAME=VALUE."""
        arguments = [command, "--data-dir", str(data or self.data), "--model", str(self.model_folder)]
        if command != "learn":
            arguments += ["--port", str(self.port if port is None else port)]
        for setting in ("model.dtype=float32", "engine.threads=1", "learn.threads=1", *settings):
            arguments += ["--set", setting]
        self._logs += 1
        with (self.folder / f"{self._logs}-{command}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                self._command(arguments),
                cwd=self.folder,
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._processes.append(process)
        return process

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `extra` is added to its environment."""
        return subprocess.run(
            self._command(list(arguments)),
            cwd=self.folder,
            env={**environment(), **extra},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def log_of(self, process: subprocess.Popen[str]) -> str:
        number = self._processes.index(process) + 1
        return next(self.folder.glob(f"{number}-*.log")).read_text(encoding="utf-8")

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        eventually(self._ready, seconds)

    def wait_for_learner(self, pid_before: int = 0) -> int:
        """Until a learner (other than `pid_before`) waits for samples or trains; returns its process id."""

        def look() -> int:
            report = self.store.reports().get("learner") if self.data.exists() else None
            works = report is not None and report.phase in ("waiting", "updating")
            return report.pid if report is not None and works and report.pid != pid_before else 0

        return eventually(look, START_SECONDS)

    def count(self, state: TurnState) -> int:
        return self.store.conversations.count_turns().get(state, 0)

    def _ready(self) -> bool:
        for process in self._processes:
            assert process.poll() in (None, 0, -signal.SIGKILL), self.log_of(process)
        try:
            return self.http.get("/readyz", timeout=2).status_code == 200
        except httpx2.TransportError:
            return False

    @staticmethod
    def _command(arguments: list[str]) -> list[str]:
        return [sys.executable, "-m", "openclaw_rl", *arguments]

    def __enter__(self) -> House:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.http.close()
        if self._store is not None:
            self._store.close()


def environment() -> dict[str, str]:
    """Ours without settings of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
