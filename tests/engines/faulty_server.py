"""A stand-in whose routes a test replaces by answers that no sound server gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_runs import Reply, collect, prompt
from fastapi.responses import StreamingResponse
from houses import connected
from sglang_stand_in import TinySglang, sglang_app
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tiny_server import Listening, TinyServer
from vllm_stand_in import TinyVllm, vllm_app

from openclaw_rl.model import Sampling
from openclaw_rl.policy.remote.engine import RemoteEngine
from openclaw_rl.policy.remote.server import InferenceServer
from openclaw_rl.policy.remote.sglang import SglangServer
from openclaw_rl.policy.remote.vllm import VllmServer

STOP = 2
SIX = Sampling(temperature=0, max_tokens=6)


@dataclass
class Faulty:
    """`kind` is "vllm" or "sglang"."""

    kind: str
    state: TinyServer
    app: ASGIApp
    model: Path
    folder: Path
    instead: dict[str, ASGIApp] = field(default_factory=dict)
    """By path; "*" is every path."""
    asked: int = 0
    """Requests for a reply."""
    url: str = ""

    @property
    def replies(self) -> str:
        """The path that replies come from."""
        return "/v1/completions" if self.kind == "vllm" else "/generate"

    @property
    def loads(self) -> str:
        return "/v1/load_lora_adapter" if self.kind == "vllm" else "/load_lora_adapter"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        self.asked += path == self.replies
        app = self.instead.get(path) or self.instead.get("*") if scope["type"] == "http" else None
        await (app or self.app)(scope, receive, send)

    def server(self) -> InferenceServer:
        return VllmServer(self.url) if self.kind == "vllm" else SglangServer(self.url)

    def engine(self, **options: object) -> RemoteEngine:
        """One that is connected, and stops at `STOP`."""
        return connected(self.server(), self.model, self.folder, frozenset({STOP}), **options)


def _vllm(model: Path) -> tuple[TinyServer, ASGIApp]:
    state = TinyVllm(model)
    return state, vllm_app(state)


def _sglang(model: Path) -> tuple[TinyServer, ASGIApp]:
    state = TinySglang(model)
    return state, sglang_app(state)


@contextmanager
def faulty(kind: str, model: Path, folder: Path) -> Iterator[Faulty]:
    state, app = _vllm(model) if kind == "vllm" else _sglang(model)
    made = Faulty(kind, state, app, model, folder)
    listening = Listening(made)
    made.url = listening.url
    try:
        yield made
    finally:
        listening.stop()
        state.close()


async def ask(engine: RemoteEngine, sampling: Sampling = SIX) -> Reply:
    return await asyncio.wait_for(collect(engine.generate(prompt(8), sampling)), 30)


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    """Accept a request and never answer it."""
    await asyncio.sleep(100)


def losing_answers_of(app: ASGIApp) -> ASGIApp:
    """Do what is asked, and cut the connection in the middle of the answer."""

    async def lost(scope: Scope, receive: Receive, send: Send) -> None:
        async def swallow(message: Message) -> None:
            pass

        await app(scope, receive, swallow)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})

    return lost


def streaming(*events: object, after: AsyncIterator[object] | None = None) -> ASGIApp:
    """A stream of events: bytes are data as they are. `after` are more of them."""

    async def lines() -> AsyncIterator[bytes]:
        for event in events:
            yield _line(event)
        if after is not None:
            async for event in after:
                yield _line(event)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(lines(), media_type="text/event-stream")(scope, receive, send)

    return answer


def _line(event: object) -> bytes:
    return b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"


def vllm_token(
    token_id: object, logprob: object = -1.0, finish: object = None, **more: Any
) -> dict[str, Any]:
    """An event of one token."""
    logprobs = {"token_logprobs": [logprob], "top_logprobs": [{}]}
    choice = {"index": 0, "token_ids": [token_id], "finish_reason": finish, "logprobs": logprobs, **more}
    return {"choices": [choice]}
