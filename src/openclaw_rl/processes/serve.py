"""The server process: loads the model and answers requests until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
import sys

import uvicorn

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.gateway.app import check_bind, create_app
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.engine import EmbeddedEngine
from openclaw_rl.processes.same_model import refuse_other_model
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, SchemaError or AlreadyRunningError at the start."""
    check_bind(settings)
    # Until uvicorn handles them, and after: it raises the signal that stopped it once more.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    with only_one(settings.home, "server"):
        listener = _listen(settings)
        port = listener.getsockname()[1]
        settings = settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})
        store = Store.open(settings.database)
        refuse_other_model(store, settings)
        store.report("server", "loading the model")
        folder = model_files.resolve(settings.model.name, log.info)
        template = model_files.load_template(folder)
        cores = CoreShare(settings.home, "server", settings.engine.threads)
        engine = EmbeddedEngine.load(settings, folder, template.stop_ids, cores)
        try:
            app = create_app(settings, store, engine, template)
            log.info("serving %s on http://%s:%d/v1", settings.served_name, settings.server.host, port)
            server = uvicorn.Server(
                uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
            )
            server.run(sockets=[listener])
        finally:
            engine.shut_down()
            store.close()


def _listen(settings: Settings) -> socket.socket:
    """Take the port before the model is loaded, so that a taken port is known at once."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Two sockets may be bound to one port as long as neither listens.
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror}); set --port") from None
    return listener
