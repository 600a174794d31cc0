"""The gateway behind a real socket, with clients that talk to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from openai import OpenAI

from openclaw_rl.config import Settings
from openclaw_rl.evals.byte_template import byte_template
from openclaw_rl.evals.scripted_engine import ScriptedEngine
from openclaw_rl.evals.scripted_server import serving
from openclaw_rl.gateway.app import create_app
from openclaw_rl.model import Turn
from openclaw_rl.store import Store

MODEL = "tiny"
Found = TypeVar("Found")


def eventually(look: Callable[[], Found], seconds: float = 20.0) -> Found:
    """What `look` returns once it is true; fails the test when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class RunningGateway:
    def __init__(self, url: str, store: Store, engine: ScriptedEngine, key: str) -> None:
        self.url = url
        self.store = store
        self.engine = engine
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=20)
        self.openai = OpenAI(base_url=f"{url}/v1", api_key=key or "unused", max_retries=0)

    def post(
        self, messages: list[dict[str, Any]], *, headers: dict[str, str] | None = None, **fields: Any
    ) -> httpx2.Response:
        body = {"model": MODEL, "messages": messages, **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=headers)

    def chat(self, *messages: dict[str, Any], headers: dict[str, str] | None = None, **fields: Any) -> Turn:
        """Ask, expect an answer, and return the turn that was stored for it."""
        response = self.post(list(messages), headers=headers, **fields)
        assert response.status_code == 200, response.text
        return self.turn(response.headers["x-turn-id"])

    @contextmanager
    def stream(
        self, messages: list[dict[str, Any]], **fields: Any
    ) -> Iterator[tuple[httpx2.Response, Iterator[dict[str, Any]]]]:
        """The response and its chunks as they arrive, each parsed, [DONE] left out."""
        body = {"model": MODEL, "messages": messages, "stream": True, **fields}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
            yield response, (json.loads(line[6:]) for line in _data_lines(response))

    def turn(self, turn_id: str) -> Turn:
        found = self.store.conversations.turn(turn_id)
        assert found is not None
        return found

    def next_states(self, turn: Turn) -> list[tuple[str, list[Any]]]:
        """Source and contents of the messages of each next state."""
        found = self.store.conversations.next_states(turn.id)
        return [(state.source, [message["content"] for message in state.messages]) for state in found]


def _data_lines(response: httpx2.Response) -> Iterator[str]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield line


@contextmanager
def running_gateway(
    folder: Path,
    *,
    engine: ScriptedEngine | None = None,
    store: Store | None = None,
    engine_settings: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **server: Any,
) -> Iterator[RunningGateway]:
    """Serve on a free loopback port until the block ends.

    `server` are its settings, `more` those of other sections.
    """
    template = engine.template if engine else byte_template()
    engine = engine or ScriptedEngine(template)
    store = store or Store.open(folder / "store.sqlite")
    settings = Settings(
        data_dir=folder, model={"name": MODEL}, server=server, engine=engine_settings or {}, **more or {}
    )
    key = server["api_keys"][0] if server.get("api_keys") else ""
    try:
        with serving(create_app(settings, store, engine, template)) as url:
            gateway = RunningGateway(url, store, engine, key)
            try:
                yield gateway
            finally:
                gateway.http.close()
                gateway.openai.close()
    finally:
        store.close()
