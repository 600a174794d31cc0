"""One reply on its way from an inference server: read by a task of its own, which `cancel` ends.

So a request begins when it is admitted and does not wait for a slow reader. Knows no server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from openclaw_rl.policy.engine import EngineError, SampledToken


class RemoteGeneration:
    """One request: an async iterator of its tokens."""

    def __init__(self, version: int, tokens: AsyncGenerator[SampledToken], ended: Callable[[], None]) -> None:
        """`ended` is called once, when the request has left the server."""
        self.version = version
        self._queue: asyncio.Queue[SampledToken | Exception | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read(tokens))
        self._task.add_done_callback(lambda _: self._leave(ended))

    def cancel(self) -> None:
        self._task.cancel()

    def fail(self, error: EngineError) -> None:
        """End it; its reader gets the error."""
        self._queue.put_nowait(error)
        self._task.cancel()

    async def __aiter__(self) -> AsyncIterator[SampledToken]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    async def _read(self, tokens: AsyncGenerator[SampledToken]) -> None:
        # Closing the stream is what tells the server that nobody wants the rest.
        async with aclosing(tokens):
            try:
                async for token in tokens:
                    self._queue.put_nowait(token)
                    if token.finish:
                        return
            except Exception as error:  # noqa: BLE001 - a task's boundary: the reader must hear of it
                self._queue.put_nowait(error)
                return
        self._queue.put_nowait(EngineError("the engine ended a reply without saying why"))

    def _leave(self, ended: Callable[[], None]) -> None:
        self._queue.put_nowait(None)
        ended()
