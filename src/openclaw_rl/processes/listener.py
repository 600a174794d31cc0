"""What every server process does with its socket: take it first, answer on it, and end on a signal.

Knows no model and no upstream.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

import uvicorn
from fastapi import FastAPI

from openclaw_rl import connections
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.gateway.gateway import Gateway

GRACE_SECONDS = 5
"""Requests that run when the server is stopped may go on for so long."""

FAREWELL_SECONDS = 2
"""Then their replies are ended, and they have so long to say so."""


def end_on_signals() -> None:
    """Until uvicorn handles them, and after: it raises the signal that stopped it once more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


def listening(settings: Settings) -> tuple[socket.socket, Settings]:
    """A socket at the server's address, and the settings with the port that it really has.

    Taken before anything is loaded, so that a taken port is known at once. Raises ConfigError.
    """
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where a socket says that it is TCP; with it, each reply's first
    # token would wait 40 ms for the client to acknowledge the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Two sockets may be bound to one port as long as neither listens.
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror}); set --port") from None
    taken = settings.server.model_copy(update={"port": listener.getsockname()[1]})
    return listener, settings.model_copy(update={"server": taken})


def check_free(settings: Settings) -> None:
    """Raise ConfigError when the address is taken: for whoever starts the server, to say so first."""
    listening(settings)[0].close()


def answer(app: FastAPI, listener: socket.socket) -> None:
    """Answer requests until a signal comes."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=connections.ACCEPTED_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS + FAREWELL_SECONDS,
    )
    _Server(config, app.state.gateway).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends the replies that take too long before it cuts their connections: clients and store hear why."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._end_replies())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_replies(self) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        await self._gateway.stop()
