"""A server of our own for as long as a measurement takes, and a learner beside it where one is wanted.

Started as `openclaw-rl up` starts them, in a folder that is gone afterwards. Knows no measurement.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.config import ConfigError
from openclaw_rl.evals.live import START_SECONDS, set_flags
from openclaw_rl.processes.up import Child
from openclaw_rl.store import Store


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that answers. `flags` are those of its settings, for others that work on its folder."""

    url: str
    pid: int
    folder: Path
    flags: tuple[str, ...]
    output: Path | None


@contextmanager
def own_server(settings: Mapping[str, object], output: Path | None = None) -> Iterator[OwnServer]:
    """Serve with these settings, by dotted name, until the block ends. No learner runs beside it.

    `output` is where the server writes what it has to say, None our own terminal. Raises ConfigError when
    it does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as folder:
        flags = _flags({"server.port": 0, **settings, "data_dir": folder})
        child = Child("server", ["serve", *flags], output)
        # Ended by SIGTERM we would leave the server's folder behind.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        child.start()
        try:
            url = _url_of(child, Path(folder) / "store.sqlite")
            pid = child.process.pid if child.process else 0
            yield OwnServer(url, pid, Path(folder), flags, output)
        finally:
            child.stop()
            child.wait()
            signal.signal(signal.SIGTERM, before)


def own_learner(server: OwnServer) -> Child:
    """The judge and the trainer of a server's folder: to be started, and stopped before the server is."""
    return Child("learner", ["learn", *server.flags], server.output)


def refuse_ended(child: Child) -> None:
    """Raises ConfigError, with the last that it said, when the process has ended by itself."""
    if child.process is None or child.process.poll() is None:
        return
    why = "see above"
    if child.output is not None:
        why = (child.output.read_text(encoding="utf-8", errors="replace").splitlines() or ["no reason"])[-1]
    raise ConfigError(f"the {child.name} of this measurement ended ({why})")


def _flags(settings: Mapping[str, object]) -> tuple[str, ...]:
    # Killed, we cannot stop it: then it ends with us.
    return ("--parent", str(os.getpid()), *set_flags(dict(settings)))


def _url_of(child: Child, database: Path) -> str:
    store = Store.open(database)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            refuse_ended(child)
            report = store.reports().get("server")
            if report is not None and report.phase == "serving":
                return str(report.detail["url"])
            time.sleep(0.1)
    finally:
        store.close()
    raise ConfigError(f"the server of this measurement did not come up in {START_SECONDS:.0f} s")
