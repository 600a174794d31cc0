"""The server process: loads the model and answers requests until it is told to stop."""

from __future__ import annotations

import logging
from contextlib import closing

from openclaw_rl.config import Settings
from openclaw_rl.gateway.app import check_bind, create_app
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.processes.engines import check, running_engine
from openclaw_rl.processes.listener import answer, end_on_signals, listening
from openclaw_rl.processes.same_model import refuse_other_model
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, SchemaError or AlreadyRunningError at the start."""
    check_bind(settings)
    check(settings)
    end_on_signals()
    with only_one(settings.home, "server"):
        listener, settings = listening(settings)
        store = Store.open(settings.database)
        refuse_other_model(store, settings)
        store.report("server", "loading the model")
        folder = model_files.resolve(settings.model.name, log.info)
        template = model_files.load_template(folder)
        with closing(store), running_engine(settings, folder, template) as engine:
            app = create_app(settings, store, engine, template)
            server = settings.server
            log.info("serving %s on http://%s:%d/v1", settings.served_name, server.host, server.port)
            answer(app, listener)
