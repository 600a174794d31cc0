"""The routes that are the same whoever makes the replies: words and scores, sessions, status, health.

Each reads its request, has the work done elsewhere and answers. Blocking work goes to threads.
"""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from openclaw_rl.gateway import admin, bodies, feedback
from openclaw_rl.gateway.bodies import AnyBody
from openclaw_rl.gateway.errors import log_failure, server_error
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.gateway.openapi import asks, takes

router = APIRouter()


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


async def tenant_of(request: Request) -> str:
    # Not a plain function: FastAPI would give it a thread, which takes longer than the work.
    return gateway_of(request).tenant_of(request.headers, request.url.query)


Tenant = Annotated[str, Depends(tenant_of)]


async def read(request: Request, kind: type[AnyBody]) -> tuple[dict[str, Any], AnyBody]:
    """The body of a request, as it came and checked."""
    raw = await bodies.read_body(request, gateway_of(request).body_limit)
    return await to_thread.run_sync(_checked, kind, raw)


def _checked(kind: type[AnyBody], raw: bytes) -> tuple[dict[str, Any], AnyBody]:
    body = bodies.parse_json(raw)
    return body, bodies.validate(kind, body)


@router.post("/v1/feedback", openapi_extra=takes(feedback.FeedbackRequest))
async def give_feedback(request: Request, tenant: Tenant) -> Response:
    """A score or words about one reply."""
    _, given = await read(request, feedback.FeedbackRequest)
    gateway = gateway_of(request)
    turn = await to_thread.run_sync(
        feedback.give_feedback, gateway.sessions, gateway.store.conversations, tenant, given
    )
    return JSONResponse({"turn_id": turn.id, "state": turn.state.value})


@router.post("/v1/sessions/{session_id}/outcome", openapi_extra=takes(feedback.OutcomeRequest))
async def give_outcome(session_id: str, request: Request, tenant: Tenant) -> Response:
    """How an episode came out; scores its last reply and closes the session."""
    _, given = await read(request, feedback.OutcomeRequest)
    gateway = gateway_of(request)
    turn = await to_thread.run_sync(
        feedback.give_outcome, gateway.sessions, gateway.store.conversations, tenant, session_id, given
    )
    return JSONResponse({"session_id": turn.session_id, "turn_id": turn.id, "state": turn.state.value})


@router.post("/v1/sessions/{session_id}/close")
async def close_session(session_id: str, request: Request, tenant: Tenant) -> Response:
    """Nothing more will follow in this session."""
    gateway = gateway_of(request)
    closed = await to_thread.run_sync(
        feedback.close, gateway.sessions, gateway.store.conversations, tenant, session_id
    )
    return JSONResponse({"session_id": closed, "closed": True})


@router.get("/v1/admin/turns", openapi_extra=asks(admin.TurnsQuery))
async def list_turns(request: Request, tenant: Tenant) -> Response:
    """Where each turn stands and why, and how many samples the next update still needs."""
    query = bodies.validate(admin.TurnsQuery, dict(request.query_params))
    return JSONResponse(await to_thread.run_sync(admin.turns, gateway_of(request), tenant, query))


@router.get("/v1/admin/status")
async def show_status(request: Request, tenant: Tenant) -> Response:
    """What serves, what waits for what, and what the processes do."""
    return JSONResponse(await to_thread.run_sync(admin.status, gateway_of(request), tenant))


@router.get("/healthz")
async def healthz() -> Response:
    """The process lives."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Requests can be answered and recorded."""
    gateway = gateway_of(request)
    try:
        await to_thread.run_sync(gateway.store.ping)
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer is "not ready"
        log_failure("the store", error)
        raise server_error("The store cannot be reached.", 503) from None
    return JSONResponse({"status": "ready", **gateway.readiness()})
