"""The HTTP server as one FastAPI app: loops 1 (serve) and 2 (pair), to be run by uvicorn.

Puts the parts together, over an engine or in front of another server, and starts and stops what runs
beside requests. It opens no socket, and closes neither the store nor the engine: both belong to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI

from openclaw_rl import __version__
from openclaw_rl.config import Settings
from openclaw_rl.gateway import common_routes, errors, routes
from openclaw_rl.gateway.auth import check_bind
from openclaw_rl.gateway.background import Background
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.gateway.openapi import describe
from openclaw_rl.gateway.service import Service
from openclaw_rl.gateway.upstream import routes as upstream_routes
from openclaw_rl.gateway.upstream.recorder import Recorder
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.engine import PolicyEngine
from openclaw_rl.store import Store

__all__ = ["check_bind", "create_app", "create_recording_app"]


def create_app(settings: Settings, store: Store, engine: PolicyEngine, template: ChatTemplate) -> FastAPI:
    """The gateway over one engine and one store.

    Raises ConfigError when it would listen beyond this machine without a key (see `check_bind`).
    """
    check_bind(settings)
    service = Service(settings, store, engine, template)
    return _app(service, Background(service, service.publication), routes.router)


def create_recording_app(settings: Settings, store: Store) -> FastAPI:
    """The gateway in front of `upstream.url`: it passes on and records, and has no engine.

    Raises ConfigError as `create_app` does, and for a URL that cannot be passed on to.
    """
    check_bind(settings)
    recorder = Recorder(settings, store)
    return _app(recorder, Background(recorder), upstream_routes.router)


def _app(gateway: Gateway, background: Background, replies: APIRouter) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await background.start()
        try:
            yield
        finally:
            await gateway.stop()
            await background.stop()

    app = FastAPI(
        title="OpenClaw-RL",
        version=__version__,
        lifespan=lifespan,
        # The description is served, but no page that shows it: such pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    app.include_router(common_routes.router)
    app.include_router(replies)
    app.openapi_schema = describe(app)
    errors.install(app)
    return app
