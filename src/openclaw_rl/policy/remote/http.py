"""Requests to an inference server: JSON and event streams, with every failure as an engine's error.

Errors never quote a request, which holds a conversation; a server's own words are cut short. Knows no
engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2

from openclaw_rl import connections
from openclaw_rl.policy.engine import EngineBusyError, EngineError
from openclaw_rl.policy.remote.server import UnreachableError

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 600.0
"""The longest time without a byte of a reply: a request may wait for its turn in the server."""
QUICK_SECONDS = 5.0
"""For what a server answers at once, however busy it is."""
LOAD_SECONDS = 60.0
"""For loading an adapter: it reads files."""
NO_ROUTE = (404, 405)
"""What servers answer on a path, or to a method, that they do not have."""
NO_KEY = (401, 403)
_LONGEST_WORDS = 300

Json = dict[str, Any]


class RefusedError(EngineError):
    """The server answered with an error of its own."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Http:
    """A client of one server; may be used from one event loop after another."""

    def __init__(self, name: str, url: str, api_key: str) -> None:
        self.name = name
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: httpx2.AsyncClient | None = None

    def __str__(self) -> str:
        return f"{self.name} at {self._url}"

    async def get(self, path: str) -> Json:
        return self._object(await self._within(QUICK_SECONDS, "GET", path, None))

    async def post(self, path: str, body: Json) -> Json:
        """For what waits its turn. Raises UnreachableError, RefusedError, and EngineBusyError."""
        return self._object(await self._whole("POST", path, body))

    async def order(self, path: str, body: Json, seconds: float = QUICK_SECONDS) -> str:
        """For what is done at once, in so many seconds at most. Raises as `post`."""
        return await self._within(seconds, "POST", path, body)

    async def events(self, path: str, body: Json) -> AsyncGenerator[Json]:
        """The data of each event until `[DONE]`. Raises as `post`, and EngineError for a cut stream."""
        begun = False
        async with self._answer("POST", path, body) as response:
            try:
                async for line in event_lines(response):
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        return
                    event = self._object(data)
                    if error := event.get("error"):
                        raise _refusal(_code(error), error)
                    yield event
                    begun = True
            except httpx2.HTTPError as error:
                if begun:
                    raise EngineError(f"{self} broke off ({type(error).__name__})") from None
                raise self._away(error) from None
        # The connection was closed in order, but the reply has no end.
        if begun:
            raise EngineError(f"{self} ended the stream too early")
        raise UnreachableError(f"{self} closed the connection")

    def lacks(self, path: str) -> EngineError:
        """What to say of a server that has not even the route."""
        return EngineError(
            f"{self} does not know {path}: it is no {self.name} server; set the right --engine-url, or "
            f"another --engine"
        )

    async def close(self) -> None:
        if self._made is not None and self._loop is asyncio.get_running_loop():
            await self._made.aclose()
        self._made = None

    async def _within(self, seconds: float, method: str, path: str, body: Json | None) -> str:
        try:
            async with asyncio.timeout(seconds):
                return await self._whole(method, path, body)
        except TimeoutError:
            raise UnreachableError(f"{self} did not answer within {seconds:g} s") from None

    async def _whole(self, method: str, path: str, body: Json | None) -> str:
        async with self._answer(method, path, body) as response:
            try:
                return (await response.aread()).decode(errors="replace")
            except httpx2.HTTPError as error:
                raise self._away(error) from None

    @asynccontextmanager
    async def _answer(self, method: str, path: str, body: Json | None) -> AsyncIterator[httpx2.Response]:
        try:
            request = self._http().build_request(method, self._url + path, json=body, headers=self._headers)
            response = await self._http().send(request, stream=True)
        except httpx2.HTTPError as error:
            raise self._away(error) from None
        except httpx2.InvalidURL:
            raise EngineError(f"{self}: that is no base URL") from None
        try:
            if response.status_code != 200:
                raise await self._refused(response)
            yield response
        finally:
            await response.aclose()

    async def _refused(self, response: httpx2.Response) -> EngineError:
        try:
            text = (await response.aread()).decode(errors="replace")
        except httpx2.HTTPError as error:
            return self._away(error)
        if response.status_code in NO_KEY:
            return RefusedError(response.status_code, f"{self} wants another key; set engine.api_key")
        if response.status_code == 429:
            return EngineBusyError(f"{self} is busy; try again in a few seconds")
        if response.status_code in (502, 503, 504):
            return UnreachableError(f"{self} is not ready (HTTP {response.status_code})")
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = text
        return _refusal(response.status_code, said.get("error", said) if isinstance(said, dict) else said)

    def _object(self, text: str) -> Json:
        with reading(self):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise TypeError
            return found

    def _away(self, error: Exception) -> UnreachableError:
        return UnreachableError(f"{self} cannot be reached ({type(error).__name__})")

    def _http(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._made is None or self._loop is not loop:
            timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, pool=None)
            # Neither proxies nor keys out of the environment: this talks to one server that we were given.
            self._made = httpx2.AsyncClient(timeout=timeout, limits=connections.limits(), trust_env=False)
            self._loop = loop
        return self._made


async def event_lines(response: httpx2.Response) -> AsyncGenerator[str]:
    """The lines of an event stream. A reply may hold separators that only Unicode counts as ends of lines."""
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
    yield rest.decode(errors="replace")


def _refusal(status: int, said: object) -> RefusedError:
    words = said.get("message") or said.get("error_message", "") if isinstance(said, dict) else said
    text = str(words).strip() or f"HTTP {status}"
    return RefusedError(status, text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}…")


def _code(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


@contextmanager
def reading(server: Http) -> Iterator[None]:
    """Reading an answer: raises EngineError where it has another form than expected."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise EngineError(
            f"{server} answered in a form that is not known here: is it the right kind, and not too old?"
        ) from None
