"""A chat client as anyone would write it against an OpenAI-compatible server, and nothing more.

The simulated users talk through this, over real HTTP; they know nothing of the server's insides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from openclaw_rl import connections
from openclaw_rl.model import Message

TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `finished` is False when the reply was cut at `max_tokens`."""

    text: str
    finished: bool
    tokens: int


class ChatClient:
    """Sends chat completion requests to one server."""

    def __init__(self, base_url: str, timeout: float = TIMEOUT_SECONDS) -> None:
        """`base_url` without the trailing /v1; `timeout` in seconds, for each request."""
        self._http = httpx2.AsyncClient(base_url=base_url, timeout=timeout, limits=connections.limits())

    async def ask(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        session: str,
        max_tokens: int,
        temperature: float | None = None,
        last: bool = False,
    ) -> Reply:
        """One reply to `messages`; `last` says that the conversation ends with it.

        Raises httpx2.HTTPError when the server cannot be reached or refuses.
        """
        headers = {"X-Session-Id": session, **({"X-Session-Done": "true"} if last else {})}
        body: dict[str, object] = {"model": model, "messages": list(messages), "max_tokens": max_tokens}
        if temperature is not None:
            body["temperature"] = temperature
        response = await self._http.post("/v1/chat/completions", json=body, headers=headers)
        response.raise_for_status()
        completion = response.json()
        choice = completion["choices"][0]
        return Reply(
            text=choice["message"]["content"] or "",
            finished=choice["finish_reason"] == "stop",
            tokens=completion["usage"]["completion_tokens"],
        )

    async def close(self) -> None:
        await self._http.aclose()
