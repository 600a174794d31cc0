"""A running turn on its way to the client: as a stream or as one body, and what a hang-up does.

Listens for the disconnect itself in both forms, so that sampling stops at once. Knows neither how a turn
is sampled nor what the forms look like.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.gateway import serialise
from openclaw_rl.gateway.completion import Completion, Delta, RunningTurn
from openclaw_rl.gateway.errors import ENGINE_FAILED, server_error
from openclaw_rl.gateway.serialise import Head

IDLE_SECONDS = 15.0
"""Longest silence of a stream before an empty chunk shows that it lives."""


class Delivery(Response):
    """The answer to a chat request, sent as its turn is sampled."""

    media_type = "text/event-stream"

    def __init__(
        self,
        running: RunningTurn,
        *,
        stream: bool,
        logprobs: bool,
        headers: dict[str, str],
    ) -> None:
        super().__init__(headers=headers)
        self._running = running
        self._head = Head.of(running, logprobs=logprobs)
        self._stream = stream
        self._own_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._hang_up_with_client(receive))
        try:
            if self._stream:
                await self._send_stream(send)
            else:
                await (await self._whole_body())(scope, receive, send)
        finally:
            watcher.cancel()
            # Does nothing after a whole turn; otherwise this request was cut off.
            self._running.hang_up()

    async def _hang_up_with_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._running.hang_up()

    async def _whole_body(self) -> Response:
        async for event in self._running.events():
            if isinstance(event, Completion):
                return JSONResponse(serialise.plain_body(self._head, event), headers=self._own_headers)
        failed = server_error(ENGINE_FAILED).response()
        failed.headers.update(self._own_headers)
        return failed

    async def _send_stream(self, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in self._chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield serialise.role_chunk(self._head)
        calls = 0
        async for event in self._running.events(IDLE_SECONDS):
            if event is None:
                yield serialise.idle_chunk(self._head)
            elif isinstance(event, Delta):
                yield serialise.delta_chunk(self._head, event, calls)
                calls += not isinstance(event.part, str)
            elif isinstance(event, Completion):
                yield serialise.final_chunks(self._head, event)
            else:
                yield serialise.error_chunk()
