"""A server of our own for as long as a measurement takes, for the judge `self`.

Started as `openclaw-rl up` starts it, in a folder that is gone afterwards; no learner runs beside it, so the
weights stay those that were loaded.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.processes.up import Child
from openclaw_rl.store import Store

START_SECONDS = 600.0
"""Loading a model, and fetching it the first time."""


@contextmanager
def own_server(settings: Settings) -> Iterator[str]:
    """The URL of a server that serves `settings.model`. Raises ConfigError when it does not come up."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as folder:
        chosen = {"data_dir": folder, "server.port": 0, "model.name": settings.model.name}
        flags = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
        child = Child("server", ["serve", *flags])
        # Ended by SIGTERM we would leave the server running.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        child.start()
        try:
            yield _url_of(child, Path(folder) / "store.sqlite")
        finally:
            child.stop()
            child.wait()
            signal.signal(signal.SIGTERM, before)


def _url_of(child: Child, database: Path) -> str:
    store = Store.open(database)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if child.process is not None and child.process.poll() is not None:
                raise ConfigError("the server for the judge `self` could not start; see above")
            report = store.reports().get("server")
            if report is not None and report.phase == "serving":
                return str(report.detail["url"])
            time.sleep(0.2)
    finally:
        store.close()
    raise ConfigError(f"the server for the judge `self` did not come up in {START_SECONDS:.0f} s")
