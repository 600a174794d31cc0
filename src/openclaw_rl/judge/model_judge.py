"""A model as the judge: m concurrent votes for each of two questions, from an OpenAI-compatible server.

Owns time-outs, retries and the cap on votes in flight. A vote that fails is kept as failed, never as a
score. Knows no store; the questions and their reading are `prompts`. Conversation text goes to the
configured server alone and into no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2

from openclaw_rl import connections
from openclaw_rl.config import JudgeSettings
from openclaw_rl.judge.prompts import prompt, read_completion
from openclaw_rl.judge.verdict import Question, unanswered
from openclaw_rl.model import Message, NextState, Turn, Vote

FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 30.0
"""Also the most that a server's Retry-After is honoured."""

_QUESTIONS: tuple[Question, ...] = ("evaluative", "directive")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class _NoAnswerError(Exception):
    """The server gave no completion; `str(error)` says why without any of the conversation."""

    def __init__(self, reason: str, *, again: bool, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.again = again
        self.wait_seconds = wait_seconds


class ModelJudge:
    """Asks `model` at the base URL `url`; an empty `model` takes the first that the server lists."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str,
        settings: JudgeSettings,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"model:{model}" if model else "model"
        self._url = url.rstrip("/")
        self._model = model
        self._settings = settings
        self._in_flight = asyncio.Semaphore(settings.concurrency)
        self._finding_model = asyncio.Lock()
        authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.AsyncClient(
            headers={**authorization, **(headers or {})},
            timeout=settings.timeout_seconds,
            limits=connections.limits(),
            # A proxy from the environment must not get what is said on this machine.
            trust_env=httpx2.URL(self._url).host not in _LOOPBACK,
        )

    async def judge(self, turn: Turn, next_state: NextState) -> tuple[Vote, ...]:
        votes = [
            self._vote(question, turn, next_state)
            for question in _QUESTIONS
            for _ in range(self._settings.votes)
        ]
        return tuple(await asyncio.gather(*votes))

    async def close(self) -> None:
        await self._client.aclose()

    async def _vote(self, question: Question, turn: Turn, next_state: NextState) -> Vote:
        try:
            # Each vote has its own nonce: seeing one prompt does not help to forge another's delimiters.
            completion, finish_reason = await self._complete(prompt(question, turn, next_state))
        except _NoAnswerError as error:
            return unanswered(question, str(error))
        return read_completion(question, completion, finish_reason)

    async def _complete(self, messages: list[Message]) -> tuple[str, str | None]:
        """A completion's text and finish reason. Raises _NoAnswerError."""
        body = {
            "model": self._model or await self._first_model(),
            "messages": messages,
            "temperature": self._settings.temperature,
            "max_tokens": self._settings.max_tokens,
            "stream": False,
        }
        reply = await self._ask("POST", "/chat/completions", body)
        try:
            choice = reply["choices"][0]
            return choice["message"].get("content") or "", choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise _NoAnswerError("the reply is no chat completion", again=False) from None

    async def _first_model(self) -> str:
        async with self._finding_model:
            if not self._model:
                listed = await self._ask("GET", "/models")
                try:
                    self._model = str(listed["data"][0]["id"])
                except (KeyError, IndexError, TypeError):
                    raise _NoAnswerError("the server lists no model; set judge.model", again=False) from None
                self.name = f"model:{self._model}"
        return self._model

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request, tried again after transport errors, 429 and 5xx; the waits are not in flight."""
        for tried in range(self._settings.retries + 1):
            try:
                async with self._in_flight:
                    return await self._ask_once(method, path, body)
            except _NoAnswerError as error:
                if not error.again or tried == self._settings.retries:
                    raise
                wait = error.wait_seconds
                if wait is None:
                    wait = FIRST_BACKOFF_SECONDS * 2**tried
                await asyncio.sleep(min(wait, LONGEST_BACKOFF_SECONDS))
        raise AssertionError("the last try returns or raises")

    async def _ask_once(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            # The client's own time-out is between bytes; this one bounds the whole call.
            async with asyncio.timeout(self._settings.timeout_seconds):
                response = await self._client.request(method, self._url + path, json=body)
        except (TimeoutError, httpx2.TimeoutException):
            raise _NoAnswerError("timed out", again=True) from None
        except httpx2.TransportError as error:
            raise _NoAnswerError(f"cannot reach it ({type(error).__name__})", again=True) from None
        status = response.status_code
        if status != 200:
            raise _NoAnswerError(
                f"HTTP {status}", again=status == 429 or status >= 500, wait_seconds=_retry_after(response)
            )
        try:
            return response.json()
        except ValueError:
            raise _NoAnswerError("the reply is no JSON", again=False) from None


def _retry_after(response: httpx2.Response) -> float | None:
    """Retry-After in seconds; its date form is rare among model servers and falls back to our own wait."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return None
