"""One request on its way to the upstream, and the answer on its way back, byte for byte as it comes.

Listens for the caller's disconnect from the start, so that the upstream's work ends with the caller's
interest. Knows neither what is recorded of an answer nor what any protocol looks like.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field

import httpx2
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.gateway.completion import HUNG_UP, SERVER_STOPPED
from openclaw_rl.gateway.errors import ApiError, log_failure, server_error
from openclaw_rl.gateway.upstream.connection import Forward, Upstream
from openclaw_rl.gateway.upstream.events import EventReader
from openclaw_rl.gateway.upstream.headers import Headers, can_be_decoded, not_recorded, to_caller
from openclaw_rl.gateway.upstream.recording import Recording

NOT_RECORDED = "The turn could not be recorded, so its answer was not given whole."

TOO_LARGE = "the upstream's answer is larger than server.max_body_mb"
UNKNOWN_CODING = "the upstream's answer has a Content-Encoding that cannot be read here"

log = logging.getLogger(__name__)

Chunks = AsyncIterator[bytes]

_EVENTS = re.compile(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:")
_ENOUGH = len(b"\xef\xbb\xbfevent:")


@dataclass(slots=True)
class Traffic:
    """What passes now, and what has passed."""

    running: set[Relay] = field(default_factory=set)
    passed: int = 0
    failed: int = 0
    """Requests that the upstream gave no whole answer to; its refusals are whole answers."""
    not_recorded: int = 0
    """Replies that passed and could not be recorded."""


class Relay(Response):
    """The answer to a request that is passed on; with `recording`, one that is kept."""

    def __init__(
        self,
        upstream: Upstream,
        traffic: Traffic,
        forward: Forward,
        recording: Recording | None = None,
        headers: Headers | None = None,
    ) -> None:
        """`headers` are added to a recorded or successful answer."""
        super().__init__()
        self._upstream = upstream
        self._traffic = traffic
        self._forward = forward
        self._recording = recording
        self._own_headers = headers or []
        self._passing: asyncio.Task[None] | None = None
        self._reason = SERVER_STOPPED
        self._started = False
        self._is_stream = False
        self.ended = asyncio.Event()
        """Set once nothing more happens, and what was recorded is on disk."""

    def hang_up(self, reason: str = HUNG_UP) -> None:
        """Nobody wants the rest. Does nothing once it has all been passed on."""
        if self._passing is not None and not self._passing.done():
            self._reason = reason
            self._passing.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._traffic.running.add(self)
        # A task of its own, which a request that is cancelled waits for until its turn is recorded.
        self._passing = asyncio.create_task(self._pass(scope, receive, send))
        watcher = asyncio.create_task(self._hang_up_with_caller(receive))
        try:
            await asyncio.wait({self._passing})
        finally:
            watcher.cancel()
            self._passing.cancel()
            await asyncio.gather(watcher, self._passing, return_exceptions=True)
            await self._record_rest()
            self._traffic.running.discard(self)
            self.ended.set()
        if not self._passing.cancelled():
            self._passing.result()

    async def _hang_up_with_caller(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.hang_up()

    async def _record_rest(self) -> None:
        """What was cut off is recorded as such; does nothing when all is recorded."""
        if self._recording is not None:
            try:
                await self._recording.end(self._reason)
            except Exception as error:  # noqa: BLE001 - nobody is left who could be told
                log_failure("recording a turn that was cut off", error)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._pass_answer(send)
            self._traffic.passed += 1
        except ApiError as error:
            self._traffic.failed += 1
            log.warning("%s %s: %s", self._forward.method, self._forward.path, error)
            if not self._started:
                self._recording = None  # nobody saw anything of it
                await error.response(scope["path"])(scope, receive, send)
                return
            self._reason = str(error)
            said = bytes(error.response(scope["path"]).body)
            # An event may have been cut in two; the first line break ends it.
            await self._send(send, b"\n\nevent: error\ndata: %b\n\n" % said if self._is_stream else said)
            await self._record_rest()
            await self._send(send, b"", more=False)

    async def _pass_answer(self, send: Send) -> None:
        answer = await self._upstream.send(self._forward)
        try:
            if not answer.is_success:
                self._recording, self._own_headers = None, []  # a refusal is no turn
            if self._recording is not None and not can_be_decoded(answer.headers.multi_items()):
                await self._give_up(self._recording, UNKNOWN_CODING)
            kind = answer.headers.get("content-type", "").strip().lower()
            self._is_stream = kind.startswith("text/event-stream")
            chunks = self._chunks(answer)
            if self._recording is not None and not kind:
                begun = [chunk async for chunk in _beginning(chunks)]
                self._is_stream = bool(_EVENTS.match(b"".join(begun)))
                chunks = _after(begun, chunks)
            if self._recording is None:
                await self._pass_rest(send, answer, chunks)
            elif self._is_stream:
                await self._pass_stream(send, answer, chunks, self._recording)
            else:
                await self._pass_body(send, answer, chunks, self._recording)
            await self._send(send, b"", more=False)
        finally:
            await answer.aclose()

    async def _pass_rest(self, send: Send, answer: httpx2.Response, chunks: Chunks) -> None:
        """All that comes, unread."""
        await self._start(send, answer)
        async for chunk in chunks:
            await self._send(send, chunk)

    async def _pass_stream(
        self, send: Send, answer: httpx2.Response, chunks: Chunks, recording: Recording
    ) -> None:
        await self._start(send, answer)
        events = EventReader()
        async for chunk in chunks:
            for data in events.feed(chunk):
                await recording.read(data)
            if events.held > recording.longest:
                await self._give_up(recording, TOO_LARGE)
                await self._pass_rest(send, answer, _after([chunk], chunks))
                return
            # On disk before the caller reads that the reply has ended: its next request may follow at once.
            await self._kept(recording.keep_if_whole())
            await self._send(send, chunk)
        for data in events.finish():
            await recording.read(data)
        await self._kept(recording.keep_if_whole())
        await self._end(recording)

    async def _pass_body(
        self, send: Send, answer: httpx2.Response, chunks: Chunks, recording: Recording
    ) -> None:
        body: list[bytes] = []
        size = 0
        async for chunk in chunks:
            if body or chunk.strip():
                body.append(chunk)
                size += len(chunk)
                if size > recording.longest:
                    await self._give_up(recording, TOO_LARGE)
                    await self._pass_rest(send, answer, _after(body, chunks))
                    return
                continue
            # White space before a body shows that the server lives.
            await self._start(send, answer)
            await self._send(send, chunk)
        whole = b"".join(body)
        await recording.read(whole.decode(errors="replace").removeprefix("\ufeff"))
        await self._end(recording)
        await self._start(send, answer)
        await self._send(send, whole)

    async def _end(self, recording: Recording) -> None:
        """Raises ApiError as `_kept` does."""
        await self._kept(recording.end())
        if recording.is_unreadable:
            self._traffic.not_recorded += 1

    async def _chunks(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        """Raises ApiError when the upstream breaks off."""
        try:
            is_plain = can_be_decoded(answer.headers.multi_items())
            async for chunk in answer.aiter_bytes() if is_plain else answer.aiter_raw():
                yield chunk
        except httpx2.HTTPError as error:
            raise self._upstream.failure(error) from None

    async def _give_up(self, recording: Recording, reason: str) -> None:
        """Pass the rest on without recording it. Raises ApiError as `_kept` does."""
        self._recording = None
        self._traffic.not_recorded += 1
        if self._started:  # the caller knows the turn's name
            await self._kept(recording.end(reason))
        else:
            self._own_headers = [*self._own_headers, *not_recorded(reason)]

    async def _kept(self, keeping: Awaitable[None]) -> None:
        """Raises ApiError when a turn cannot be written: what is not recorded is not answered whole."""
        try:
            await keeping
        except Exception as error:  # noqa: BLE001 - whatever the store raises, the caller must hear of it
            log_failure("recording a turn", error)
            self._recording = None  # it was tried
            raise server_error(NOT_RECORDED) from None

    async def _start(self, send: Send, answer: httpx2.Response) -> None:
        if self._started:
            return
        self._started = True
        own = [*(self._recording.headers if self._recording else []), *self._own_headers]
        ours = {name.lower() for name, _ in own}
        passed = to_caller(answer.headers.multi_items())
        coding = answer.headers.encoding
        headers = [(n.encode(coding), v.encode(coding)) for n, v in passed if n.lower() not in ours]
        headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def _send(self, send: Send, chunk: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def _beginning(chunks: Chunks) -> Chunks:
    """As many as it takes to tell a stream of events from a body."""
    begun = b""
    while len(begun.lstrip()) < _ENOUGH and (chunk := await anext(chunks, None)) is not None:
        begun += chunk
        yield chunk


async def _after(begun: list[bytes], chunks: Chunks) -> Chunks:
    for chunk in begun:
        yield chunk
    async for chunk in chunks:
        yield chunk
