"""The HTTP server as one FastAPI app: loops 1 (serve) and 2 (pair), to be run by uvicorn.

Puts the parts together and starts and stops what runs beside requests. It opens no socket, and closes
neither the store nor the engine: both belong to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from openclaw_rl import __version__
from openclaw_rl.config import Settings
from openclaw_rl.gateway import errors
from openclaw_rl.gateway.auth import check_bind
from openclaw_rl.gateway.background import Background
from openclaw_rl.gateway.openapi import describe
from openclaw_rl.gateway.routes import router
from openclaw_rl.gateway.service import Service
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.engine import PolicyEngine
from openclaw_rl.store import Store

__all__ = ["check_bind", "create_app"]


def create_app(settings: Settings, store: Store, engine: PolicyEngine, template: ChatTemplate) -> FastAPI:
    """The gateway over one engine and one store.

    Raises ConfigError when it would listen beyond this machine without a key (see `check_bind`).
    """
    check_bind(settings)
    service = Service(settings, store, engine, template)
    background = Background(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await background.start()
        try:
            yield
        finally:
            await service.stop()
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
    app.state.service = service
    app.include_router(router)
    app.openapi_schema = describe(app)
    errors.install(app)
    return app
