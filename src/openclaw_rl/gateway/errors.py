"""Errors as clients read them, and what becomes of an exception that nobody foresaw.

Owns the form of an error body (OpenAI's, and Anthropic's on that protocol's routes) and the mapping of
our exceptions to status codes. Logs class names only:
an exception's text may quote a conversation.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openclaw_rl.policy.engine import EngineBusyError, PromptTooLongError

log = logging.getLogger(__name__)

BUSY_RETRY_SECONDS = 2
ENGINE_FAILED = "The engine failed while it generated; the reply is incomplete."
_INTERNAL = "The server met an unexpected error; its log names the kind."
_CLIENT_CLOSED_REQUEST = 499

ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """An answer with a status other than 200."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, kind, param, code)
        self.headers = headers

    def response(self, path: str) -> JSONResponse:
        """The error in the form that the clients of `path` know."""
        body = self.body
        if path.startswith(ANTHROPIC_PATH):
            body = anthropic_error_body(str(self), _ANTHROPIC_KINDS.get(self.status, "api_error"))
        return JSONResponse(body, self.status, self.headers)


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic_error_body(message: str, kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, code: str = "not_found", param: str | None = None) -> ApiError:
    return ApiError(404, message, code=code, param=param)


def server_error(message: str = _INTERNAL, status: int = 500) -> ApiError:
    return ApiError(status, message, kind="server_error", code="server_error")


def install(app: FastAPI) -> None:
    """Answer every error of `app` in the form of its route."""

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> Response:
        return error.response(request.url.path)

    @app.exception_handler(PromptTooLongError)
    async def on_long_prompt(request: Request, error: PromptTooLongError) -> Response:
        path = request.url.path
        message = str(error)
        if path.startswith(ANTHROPIC_PATH):  # the sentence by which those clients know that they must compact
            message = f"prompt is too long: {error.counted} tokens > {error.context_length} maximum"
        return bad_request(message, "messages", "context_length_exceeded").response(path)

    @app.exception_handler(EngineBusyError)
    async def on_busy(request: Request, error: EngineBusyError) -> Response:
        headers = {"Retry-After": str(BUSY_RETRY_SECONDS)}
        busy = ApiError(429, str(error), kind="rate_limit_error", code="engine_busy", headers=headers)
        return busy.response(request.url.path)

    @app.exception_handler(HTTPException)
    async def on_routing(request: Request, error: HTTPException) -> Response:
        message = {
            404: f"There is no {request.url.path} here{_meant(request)}.",
            405: f"{request.url.path} does not answer {request.method}.",
        }.get(error.status_code, error.detail)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        headers = dict(error.headers) if error.headers else None
        answer = ApiError(error.status_code, message, code=code, headers=headers)
        return answer.response(request.url.path)

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)  # nobody reads it

    app.add_middleware(ErrorBoundary)


def _meant(request: Request) -> str:
    """The route that the client would have reached, had its base URL no /v1 too many or too few."""
    path = "/v1" + re.sub(r"^(/v1)+(?=/)", "", request.url.path).rstrip("/")
    reached = any(
        route.matches({**request.scope, "path": path})[0] is Match.FULL for route in request.app.routes
    )
    return f", but {path} is: check the client's base URL" if reached and path != request.url.path else ""


class ErrorBoundary:
    """The last resort: an unforeseen exception becomes a 500 and one log line without its text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception as error:  # noqa: BLE001 - a process boundary: the client must get an answer
            log_failure(f"{scope['method']} request", error)
            if not started:
                await server_error().response(scope["path"])(scope, receive, send)


def log_failure(what: str, error: BaseException) -> None:
    """One line with the exception's class and place, never its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace else "unknown place"
    log.error("%s failed: %s at %s", what, type(error).__name__, place)
