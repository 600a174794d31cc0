"""The recorder behind a real socket, with clients that talk to it and its store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI
from other_server import serving

from openclaw_rl.config import Settings
from openclaw_rl.gateway.app import create_recording_app
from openclaw_rl.model import Turn
from openclaw_rl.store import Store

KEY = "sk-secret-of-the-caller"


class RunningRecorder:
    def __init__(self, url: str, store: Store, folder: Path) -> None:
        self.url = url
        self.store = store
        self.folder = folder
        self.http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=20)
        self.openai = OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)

    def chat(self, *messages: dict[str, Any], model: str = "big", **fields: Any) -> httpx2.Response:
        return self.http.post(
            "/v1/chat/completions", json={"model": model, "messages": list(messages), **fields}
        )

    def turns(self) -> list[Turn]:
        """Oldest first."""
        return self.store.conversations.turns()[::-1]

    def turn(self, answer: httpx2.Response) -> Turn:
        """The turn that an answer names."""
        found = self.store.conversations.turn(answer.headers["x-turn-id"])
        assert found is not None
        return found

    def aborted(self) -> Turn:
        """The newest turn, once there is one that was cut off."""
        deadline = time.monotonic() + 10
        while not (found := self.store.conversations.turns(limit=1)) or found[0].state.value != "aborted":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found[0]


@contextmanager
def running_recorder(
    folder: Path, upstream: str, *, upstream_settings: dict[str, Any] | None = None, **server: Any
) -> Iterator[RunningRecorder]:
    store = Store.open(folder / "store.sqlite")
    settings = Settings(
        data_dir=folder, upstream={"url": upstream, **(upstream_settings or {})}, server=server
    )
    try:
        with serving(create_recording_app(settings, store)) as url:
            recorder = RunningRecorder(url, store, folder)
            try:
                yield recorder
            finally:
                recorder.http.close()
                recorder.openai.close()
    finally:
        store.close()
