"""The server process in front of another server: passes on and records until it is told to stop.

Needs neither PyTorch nor a model's files.
"""

from __future__ import annotations

import logging

from openclaw_rl.config import Settings
from openclaw_rl.gateway.app import check_bind, create_recording_app
from openclaw_rl.processes.listener import answer, end_on_signals, listening
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


def record(settings: Settings) -> None:
    """Pass on until SIGINT or SIGTERM; raises ConfigError, SchemaError or AlreadyRunningError before."""
    check_bind(settings)
    end_on_signals()
    with only_one(settings.home, "server"):
        listener, settings = listening(settings)
        store = Store.open(settings.database)
        try:
            app = create_recording_app(settings, store)
            server = settings.server
            log.info(
                "recording what %s answers, on http://%s:%d/v1",
                settings.upstream.url,
                server.host,
                server.port,
            )
            answer(app, listener)
        finally:
            store.close()
