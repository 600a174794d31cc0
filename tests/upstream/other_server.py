"""Another server: answers what a test wrote for it, byte for byte, and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Headers = list[tuple[str, str]]
EVENTS: Headers = [("content-type", "text/event-stream")]
JSON: Headers = [("content-type", "application/json")]


@dataclass
class Received:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """Chunks are sent `pause` seconds apart."""

    chunks: list[bytes]
    status: int = 200
    headers: Headers = field(default_factory=lambda: list(JSON))
    pause: float = 0.0
    head_after: float = 0.0
    """Seconds before the head."""
    gate: threading.Semaphore | None = None
    """Each chunk waits for a permit."""
    breaks: bool = False
    """Close the connection in the middle of the answer."""


def body(answer: Any, status: int = 200, **headers: str) -> Answer:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Answer([json.dumps(answer).encode()], status, [*JSON, *named])


def stream(*events: Any, pause: float = 0.0, done: bool = True, **fields: Any) -> Answer:
    """An event for each of `events`, in OpenAI's form."""
    chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return Answer(chunks + [b"data: [DONE]\n\n"] * done, headers=list(EVENTS), pause=pause, **fields)


class OtherServer:
    def __init__(self) -> None:
        self.url = ""
        self.answers: deque[Answer] = deque()
        self.received: list[Received] = []
        self.hung_up = threading.Event()
        """Set once a client leaves before its answer is whole."""

    @property
    def last(self) -> Received:
        return self.received[-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["raw_path"].decode()
        self.received.append(Received(scope["method"], path, scope["query_string"].decode(), headers, raw))
        answer = self.answers.popleft()
        sending = asyncio.create_task(self._send(answer, send))
        leaving = asyncio.create_task(receive())
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            self.hung_up.set()
        leaving.cancel()
        sending.cancel()
        await asyncio.gather(leaving, sending, return_exceptions=True)
        if answer.breaks:
            raise ConnectionResetError

    async def _send(self, answer: Answer, send: Any) -> None:
        await asyncio.sleep(answer.head_after)
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for chunk in answer.chunks:
            if answer.gate is not None:
                await asyncio.to_thread(answer.gate.acquire)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(answer.pause)
        if not answer.breaks:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an app on a free loopback port until the block ends; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def other_server() -> Iterator[OtherServer]:
    server = OtherServer()
    with serving(server) as server.url:
        yield server
