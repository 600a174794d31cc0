"""Replies over real HTTP as a client sees them: streamed, each chunk noted when it comes.

The same for our server and for any other that speaks OpenAI's Chat Completions. Clients share the cores with
what they measure, so chunks are read only once the reply is over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from openclaw_rl import connections
from openclaw_rl.config import ConfigError
from openclaw_rl.evals.serve_bench.measure import Job, Pass
from openclaw_rl.model import Message

TIMEOUT_SECONDS = 600.0


@dataclass(slots=True)
class Streamed:
    """One reply. `arrivals` are when pieces of its text came, by `time.perf_counter`."""

    arrivals: list[float] = field(default_factory=list)
    text: str = ""
    tokens: int = 0
    """As the server counts them."""
    id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS, limits=connections.limits())


async def stream(
    http: httpx2.AsyncClient, model: str, messages: Sequence[Message], **fields: Any
) -> Streamed:
    """Ask and read to the end. Raises ConfigError when the server refuses or its stream breaks off."""
    body = {
        "model": model,
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }
    seen, ended = Streamed(), False
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != httpx2.codes.OK:
            said = (await response.aread()).decode(errors="replace")
            raise ConfigError(f"{http.base_url} answered {response.status_code}: {said[:200]}")
        seen.headers = response.headers
        pieces = [(time.perf_counter(), piece) async for piece in response.aiter_bytes()]
    for moment, line in lines(pieces):
        ended = ended or line == b"data: [DONE]"
        if line.startswith(b"data: {"):
            _note(json.loads(line[6:]), moment, seen)
    if not ended or not seen.tokens:
        raise ConfigError(f"{http.base_url} ended a reply without saying how many tokens it has")
    seen.arrivals = seen.arrivals or [time.perf_counter()]  # tokens without any text
    return seen


def lines(pieces: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Each line with the moment at which its last piece came."""
    begun = b""
    for moment, piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        yield from ((moment, line.removesuffix(b"\r")) for line in whole)


def _note(chunk: dict[str, Any], moment: float, seen: Streamed) -> None:
    seen.id = chunk.get("id", seen.id)
    if usage := chunk.get("usage"):
        seen.tokens = usage["completion_tokens"]
    for choice in chunk.get("choices", ()):
        if text := choice["delta"].get("content"):
            seen.text += text
            seen.arrivals.append(moment)


class OverHttp:
    """A server as a contender. `fields` go into each request."""

    def __init__(self, url: str, model: str, **fields: Any) -> None:
        self.url = url
        self._model = model
        self._fields = fields

    def measure(self, job: Job) -> Pass:
        return asyncio.run(self._measure(job))

    async def _measure(self, job: Job) -> Pass:
        async with client(self.url) as http:
            asked = [
                stream(
                    http,
                    self._model,
                    [{"role": "user", "content": prompt}],
                    max_tokens=job.tokens,
                    **self._fields,
                )
                for prompt in job.prompts
            ]
            started = time.perf_counter()
            replies = await asyncio.gather(*asked)
        return Pass.of(started, [reply.arrivals for reply in replies], sum(r.tokens for r in replies))
