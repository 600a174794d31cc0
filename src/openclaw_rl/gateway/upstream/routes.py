"""The routes in front of another server: what passes and is recorded, what only passes, what does not.

A reply that cannot be recorded passes all the same and says so in a header; a path by which replies are
made that nobody here can read is refused. Decides nothing about turns. Blocking work goes to threads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw_rl.gateway import bodies, sides
from openclaw_rl.gateway.common_routes import Tenant
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.errors import ApiError, not_found
from openclaw_rl.gateway.openapi import takes
from openclaw_rl.gateway.placement import place
from openclaw_rl.gateway.protocols.chat import ChatRequest
from openclaw_rl.gateway.protocols.messages import MessagesRequest
from openclaw_rl.gateway.protocols.responses import ResponsesRequest
from openclaw_rl.gateway.upstream import chat, messages, responses
from openclaw_rl.gateway.upstream.connection import Forward
from openclaw_rl.gateway.upstream.headers import Headers, not_recorded, to_upstream
from openclaw_rl.gateway.upstream.recorder import Recorder
from openclaw_rl.gateway.upstream.recording import Readers, Recording
from openclaw_rl.gateway.upstream.relay import Relay

router = APIRouter()

Read = Callable[[Mapping[str, Any]], CompletionRequest]


def recorder_of(request: Request) -> Recorder:
    recorder: Recorder = request.app.state.gateway
    return recorder


@router.post("/v1/chat/completions", openapi_extra=takes(ChatRequest, streams=True))
async def chat_completions(request: Request, tenant: Tenant) -> Response:
    """OpenAI's Chat Completions, passed on and recorded."""
    return await _record(request, tenant, chat.read_request, Readers(chat.read_event, chat.read_done))


@router.post("/v1/messages", openapi_extra=takes(MessagesRequest, streams=True))
async def anthropic_messages(request: Request, tenant: Tenant) -> Response:
    """Anthropic's Messages, passed on and recorded."""
    return await _record(request, tenant, messages.read_request, Readers(messages.read_event))


@router.post("/v1/responses", openapi_extra=takes(ResponsesRequest, streams=True))
async def openai_responses(request: Request, tenant: Tenant) -> Response:
    """OpenAI's Responses, passed on and recorded."""
    sessions = recorder_of(request).sessions

    def read(body: Mapping[str, Any]) -> CompletionRequest:
        return responses.read_request(body, lambda response_id: sessions.answered(response_id, tenant))

    return await _record(request, tenant, read, Readers(responses.read_event))


@router.get("/v1/models")
@router.get("/v1/models/{model:path}")
@router.post("/v1/embeddings")
@router.post("/v1/messages/count_tokens")
async def passed_on(request: Request, _: Tenant) -> Response:
    """The upstream's own answer; it holds no reply, so nothing is recorded."""
    path = _path(request)
    # As the upstream may read it: some decode twice, and some take a backslash or `..;` for their like.
    segments = re.split(r"[/\\]", unquote(unquote(path)))
    if any(segment.partition(";")[0] in (".", "..") for segment in segments) or "\\" in unquote(path):
        raise not_found(f"{path} is not passed on: it leads elsewhere than it says.")
    raw = await bodies.read_body(request, recorder_of(request).body_limit)
    return _relay(request, raw)


@router.api_route(
    "/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False
)
async def not_passed_on(path: str, _: Tenant) -> Response:
    """Whatever else is asked for could make replies that nobody would record."""
    raise not_found(
        f"/v1/{path} is not passed on. This server records what /v1/chat/completions, /v1/messages and "
        f"/v1/responses answer; ask the upstream itself for anything else.",
    )


async def _record(request: Request, tenant: str, read: Read, readers: Readers) -> Response:
    """Pass a request on, and record it if it can be read."""
    recorder = recorder_of(request)
    raw = await bodies.read_body(request, recorder.body_limit)
    arrived = time.time()
    try:
        asked = await to_thread.run_sync(lambda: read(bodies.parse_json(raw)))
        stated = sides.stated_kind(request.headers, asked.turn_type)
        placed = await to_thread.run_sync(
            lambda: place(recorder.sessions, tenant, request.headers, asked, stated=stated, arrived=arrived)
        )
    except responses.BackgroundError:
        raise
    except ApiError as error:
        return _unrecorded(request, raw, str(error))
    except (ValueError, TypeError, RecursionError):
        # JSON inside a string, such as a call's arguments, can be nested without end or hold anything.
        return _unrecorded(request, raw, "its messages cannot be read")
    return _relay(request, raw, Recording(recorder.store, placed, readers, recorder.body_limit))


def _path(request: Request) -> str:
    """As it came."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii")


def _unrecorded(request: Request, raw: bytes, reason: str) -> Relay:
    recorder_of(request).traffic.not_recorded += 1
    return _relay(request, raw, headers=not_recorded(reason))


def _relay(
    request: Request,
    raw: bytes,
    recording: Recording | None = None,
    headers: Headers | None = None,
) -> Relay:
    recorder = recorder_of(request)
    forward = Forward(
        request.method,
        _path(request),
        request.url.query,
        to_upstream(request.headers.items()),
        raw,
    )
    return Relay(recorder.upstream, recorder.traffic, forward, recording, headers)
