"""An inference server as a policy engine: versions become adapters of its base model, requests streams.

A request waits for a server that is away, and gets its version loaded again by one that was restarted, as
long as it has no token yet. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from openclaw_rl.config import Settings
from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.embedded.grammar import Compiled, Grammars
from openclaw_rl.policy.engine import (
    EngineBusyError,
    EngineError,
    GrammarError,
    SampledToken,
    check_scored,
    room_for_reply,
)
from openclaw_rl.policy.remote.adapter_files import ModelShape
from openclaw_rl.policy.remote.answers import Answers
from openclaw_rl.policy.remote.generation import RemoteGeneration
from openclaw_rl.policy.remote.server import InferenceServer, UnknownAdapterError, UnreachableError
from openclaw_rl.policy.remote.versions import Served, Versions

RETRY_SECONDS = 0.5
LEAST_SECONDS = 5.0
"""A server that is there gets so long to answer, however short `engine.wait_seconds` is."""
MOST_RESTORES = 3
"""A server that forgets a version so often in one request has no room for it."""


class RemoteEngine:
    """A `PolicyEngine` on an inference server."""

    def __init__(
        self,
        server: InferenceServer,
        model_folder: Path,
        stop_ids: frozenset[int],
        settings: Settings,
        context_length: int,
    ) -> None:
        """`context_length` is the server's; `model_folder` holds the tokenizer.json and config.json."""
        asked = settings.engine.context_length
        self.context_length = min(asked, context_length) if asked else context_length
        self._server = server
        self._stop_ids = stop_ids
        self._wait_seconds = settings.engine.wait_seconds
        self._most_unfinished = settings.engine.max_concurrent + settings.engine.max_waiting
        shape = ModelShape.of(model_folder, settings.learn.lora_targets)
        self._grammars = Grammars(model_folder / "tokenizer.json", shape.vocabulary, stop_ids)
        self._versions = Versions(server, shape, settings.home)
        self._answers = Answers(server.name, shape.vocabulary)
        self._running: set[RemoteGeneration] = set()
        self._closing = False

    async def start(self) -> None:
        """Find out whether the server can be used as it is. Raises EngineError, with what to do about it."""
        await self._versions.start()

    @property
    def serving_version(self) -> int:
        return self._versions.serving.number

    def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
    ) -> RemoteGeneration:
        room = room_for_reply(prompt_ids, self.context_length)
        if sampling.grammar:
            self._refuse_grammars()
        self._refuse_when_closing()
        served = self._versions.served(version)
        if len(self._running) >= self._most_unfinished:
            raise EngineBusyError("too many requests are waiting; try again in a few seconds")
        sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        tokens = self._tokens(served, prompt_ids, sampling)
        generation = RemoteGeneration(served.number, tokens, lambda: self._ended(served, generation))
        self._versions.begin(served)
        self._running.add(generation)
        return generation

    async def score(
        self,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        *,
        top_logprobs: int = 0,
        version: int | None = None,
    ) -> tuple[SampledToken, ...]:
        # The server draws one more token than it scores.
        check_scored(prompt_ids, reply_ids, self.context_length - 1)
        self._refuse_when_closing()
        served = self._versions.served(version)
        deadline = time.monotonic() + self._wait_seconds
        self._versions.begin(served)
        try:
            for _ in range(MOST_RESTORES):
                seen = served.restored
                try:
                    told = await self._server.score(served.adapter, prompt_ids, reply_ids, top_logprobs)
                    return self._answers.scored(told, reply_ids)
                except UnknownAdapterError:
                    await self._restored(served, seen, deadline)
        finally:
            self._versions.end(served)
        raise self._forgets(served)

    def unlearnable(self, sampling: Sampling) -> str:
        if not self._versions.trial.tells_full and (sampling.top_p < 1 or sampling.top_k):
            name = self._server.name
            return f"sampled by {name} with top-p or top-k: it tells log-probs of what those leave"
        return self._server.unlearnable(sampling)

    async def prepare_grammar(self, grammar: str) -> Compiled:
        # Compiled here too: what is wrong with it is known before the turn is placed.
        self._refuse_grammars()
        return await self._grammars.ready(grammar)

    async def publish(self, version: PolicyVersion, *, serve: bool = True) -> None:
        self._refuse_when_closing()
        await self._versions.publish(version, serve=serve)

    async def close(self) -> None:
        """Unload everything; what still runs ends with an EngineError."""
        self._closing = True
        for generation in list(self._running):
            generation.fail(EngineError("the engine was closed"))
        self._grammars.close()
        await self._versions.close()
        await self._server.close()

    def _ended(self, served: Served, generation: RemoteGeneration) -> None:
        self._running.discard(generation)
        if not self._closing:
            self._versions.end(served)

    async def _tokens(
        self, served: Served, prompt_ids: tuple[int, ...], sampling: Sampling
    ) -> AsyncGenerator[SampledToken]:
        deadline = time.monotonic() + self._wait_seconds
        restores = 0
        # Until the first token nothing is lost by asking again.
        while restores < MOST_RESTORES:
            seen = served.restored
            try:
                try:
                    stream = self._server.stream(served.adapter, prompt_ids, sampling, self._stop_ids)
                    checked = self._answers.reply(stream, sampling.max_tokens, self._stop_ids)
                    async with aclosing(checked) as tokens:
                        async for token in tokens:
                            yield token
                except UnknownAdapterError:
                    await self._restored(served, seen, deadline)
                    restores += 1
                else:
                    return
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
        raise self._forgets(served)

    async def _restored(self, served: Served, seen: int, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), LEAST_SECONDS)):
                await self._versions.restore(served, seen)
        except TimeoutError:
            raise UnreachableError(
                f"{self._server.name} did not load version {served.number} again in time"
            ) from None

    def _forgets(self, served: Served) -> EngineError:
        return EngineError(f"{self._server.name} forgets version {served.number} again and again")

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise EngineError("the engine is closing")

    def _refuse_grammars(self) -> None:
        if not self._server.reads_grammars:
            raise GrammarError(f"the {self._server.name} engine takes no grammars; use embedded or vllm")
