"""Running turns on their way to the client: as a stream or as one body, and what a hang-up does.

Listens for the disconnect itself in both forms, so that sampling stops at once. Knows neither how a turn
is sampled nor what any protocol looks like.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.gateway.answer import Answer
from openclaw_rl.gateway.completion import HUNG_UP, Completion, Delta, Event, RunningTurn
from openclaw_rl.gateway.errors import ENGINE_FAILED, server_error

OTHER_FAILED = "another choice of the request failed"
IDLE_SECONDS = 15.0
"""Longest silence of a stream before an empty event shows that it lives."""


class Delivery(Response):
    """The answer to a request, sent as its turns are sampled; each choice is a turn."""

    media_type = "text/event-stream"

    def __init__(
        self, choices: Sequence[RunningTurn], answer: Answer, *, stream: bool, headers: dict[str, str]
    ) -> None:
        super().__init__(headers=headers)
        self._choices = choices
        self._answer = answer
        self._stream = stream
        self._own_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._hang_up_with_client(receive))
        try:
            if self._stream:
                await self._send_stream(send)
            else:
                await (await self._whole_body(scope))(scope, receive, send)
        finally:
            watcher.cancel()
            self._hang_up()

    async def _hang_up_with_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._hang_up()

    def _hang_up(self, reason: str = HUNG_UP) -> None:
        """Does nothing to a whole turn; any other was cut off with its request."""
        for running in self._choices:
            running.hang_up(reason)

    async def _whole_body(self, scope: Scope) -> Response:
        completions: dict[int, Completion] = {}
        async for choice, event in merged(self._choices):
            if isinstance(event, Completion):
                completions[choice] = event
            elif not isinstance(event, Delta):
                self._hang_up(OTHER_FAILED)
                failed = server_error(ENGINE_FAILED).response(scope["path"])
                failed.headers.update(self._own_headers)
                return failed
        body = self._answer.body([completions[choice] for choice in sorted(completions)])
        return JSONResponse(body, headers=self._own_headers)

    async def _send_stream(self, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for event in self._events():
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        yield self._answer.opening()
        completions: dict[int, Completion] = {}
        async for choice, event in merged(self._choices, IDLE_SECONDS):
            if event is None:
                yield self._answer.idle()
            elif isinstance(event, Delta):
                yield self._answer.delta(choice, event)
            elif isinstance(event, Completion):
                completions[choice] = event
                yield self._answer.ending(choice, event)
            else:
                self._hang_up(OTHER_FAILED)
                yield self._answer.failure()
                return
        yield self._answer.closing([completions[choice] for choice in sorted(completions)])


async def merged(
    choices: Sequence[RunningTurn], idle_seconds: float | None = None
) -> AsyncIterator[tuple[int, Event | None]]:
    """The events of all choices as they come, each with its choice; None after each `idle_seconds`
    without any."""
    coming: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()

    async def pass_on(choice: int, running: RunningTurn) -> None:
        async for event in running.events():
            coming.put_nowait((choice, event))

    passing = [asyncio.create_task(pass_on(choice, running)) for choice, running in enumerate(choices)]
    unfinished = len(choices)
    try:
        while unfinished:
            try:
                async with asyncio.timeout(idle_seconds):
                    choice, event = await coming.get()
            except TimeoutError:
                yield 0, None
                continue
            unfinished -= not isinstance(event, Delta)
            yield choice, event
    finally:
        for task in passing:
            task.cancel()
