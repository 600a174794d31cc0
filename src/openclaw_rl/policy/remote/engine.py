"""An inference server as a policy engine: versions become adapters of its base model, requests streams.

Each load has a name of its own, never used twice, so nothing that the server keeps under a name can be of
other weights. A server that was restarted gets its adapters again when they are asked for. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openclaw_rl.config import Settings
from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.embedded.grammar import Compiled, Grammars
from openclaw_rl.policy.embedded.version_files import reading
from openclaw_rl.policy.engine import (
    EngineBusyError,
    EngineError,
    GrammarError,
    PromptTooLongError,
    SampledToken,
    UnknownVersionError,
    check_scored,
)
from openclaw_rl.policy.remote.adapter_files import AdapterFiles, ModelShape, no_change
from openclaw_rl.policy.remote.generation import RemoteGeneration
from openclaw_rl.policy.remote.server import InferenceServer, UnknownAdapterError, UnreachableError
from openclaw_rl.policy.remote.trial import Trial

KEPT_NAMED = 2
"""Versions that requests named which stay loaded between two of them."""
RETRY_SECONDS = 0.5
PREFIX = "openclaw-rl-"

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Served:
    """A version on the server."""

    number: int
    adapter: str | None = None
    """None is the base model."""
    folder: Path | None = None
    is_felt: bool = False
    in_use: int = 0
    restored: int = 0
    """How often it was loaded again."""
    restoring: asyncio.Lock = field(default_factory=asyncio.Lock)


class RemoteEngine:
    """A `PolicyEngine` on an inference server, of which it is the only user that loads adapters."""

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
        self._home = settings.home
        self._wait_seconds = settings.engine.wait_seconds
        self._most_unfinished = settings.engine.max_concurrent + settings.engine.max_waiting
        self._shape = ModelShape.of(model_folder, settings.learn.lora_targets)
        self._grammars = Grammars(model_folder / "tokenizer.json", self._shape.vocabulary, stop_ids)
        self._trial = Trial(server, self._shape.vocabulary)
        self._base = self._serving = Served(0)
        self._loaded = {0: self._base}
        self._named: list[int] = []
        self._left_folders: list[Path] = []
        self._run = secrets.token_hex(4)
        self._loads = itertools.count(1)
        self._changing = asyncio.Lock()
        self._unfinished = 0
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def serving_version(self) -> int:
        return self._serving.number

    def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
    ) -> RemoteGeneration:
        if len(prompt_ids) >= self.context_length:
            raise PromptTooLongError(len(prompt_ids), self.context_length)
        if not prompt_ids:
            raise EngineError("the prompt is empty")
        if sampling.grammar:
            self._refuse_grammars()
        served = self._served(version)
        if self._unfinished >= self._most_unfinished:
            raise EngineBusyError("too many requests are waiting; try again in a few seconds")
        self._begin(served)
        tokens = self._tokens(served, prompt_ids, sampling)
        return RemoteGeneration(served.number, tokens, lambda: self._end(served))

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
        served = self._served(version)
        self._begin(served)
        try:
            while True:
                seen = served.restored
                try:
                    return tuple(
                        await self._server.score(served.adapter, prompt_ids, reply_ids, top_logprobs)
                    )
                except UnknownAdapterError:
                    await self._restore(served, seen)
        finally:
            self._end(served)

    def unlearnable(self, sampling: Sampling) -> str:
        if not self._trial.tells_full and (sampling.top_p < 1 or sampling.top_k):
            return (
                f"sampled by {self._server.name} with top-p or top-k: it tells log-probs of what those leave"
            )
        return self._server.unlearnable(sampling)

    async def prepare_grammar(self, grammar: str) -> Compiled:
        # Compiled here too: what is wrong with it is known before the turn is placed.
        self._refuse_grammars()
        return await self._grammars.ready(grammar)

    async def publish(self, version: PolicyVersion, *, serve: bool = True) -> None:
        async with self._changing:
            if self._closing:
                raise EngineError("the engine is closing")
            served = self._loaded.get(version.number)
            if served is None:
                with reading(version):
                    files = await asyncio.to_thread(AdapterFiles.read, self._home, version, self._shape)
                served = await self._load(version.number, files.link, is_felt=files.is_felt)
                self._loaded[version.number] = served
            if serve:
                self._serving = served
            else:
                self._named = [*(each for each in self._named if each != served.number), served.number]
            await self._unload_spare()

    async def start(self) -> None:
        """Test the base model, and that adapters can be loaded. Raises EngineError where the server cannot be
        used as it is."""
        await self._trial.base()
        ours = str(self._served_folder)
        for adapter, folder in (await self._server.adapters()).items():
            if adapter.startswith(PREFIX) and folder.startswith(ours):  # an earlier process of ours left it
                await self._server.unload(adapter)
        await asyncio.to_thread(shutil.rmtree, self._served_folder, ignore_errors=True)
        unchanged = await self._load(0, self._write_no_change, is_felt=False)
        if self._server.mixes_base:
            # So no request is without an adapter.
            self._base.adapter, self._base.folder = unchanged.adapter, unchanged.folder
        elif unchanged.adapter is not None and unchanged.folder is not None:
            await self._server.unload(unchanged.adapter)
            self._left_folders.append(unchanged.folder)

    async def close(self) -> None:
        """Unload everything; what still runs ends with an EngineError."""
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        self._grammars.close()
        try:
            for served in self._loaded.values():
                if served.adapter is not None:
                    await self._server.unload(served.adapter)
        except EngineError as error:  # it is going away too
            log.info("adapters stay loaded: %s", error)
        await self._server.close()
        await asyncio.to_thread(shutil.rmtree, self._served_folder, ignore_errors=True)

    # Requests

    def _served(self, version: int | None) -> Served:
        if self._closing:
            raise EngineError("the engine is closing")
        served = self._serving if version is None else self._loaded.get(version)
        if served is None:
            raise UnknownVersionError(f"policy version {version} is not loaded")
        return served

    def _begin(self, served: Served) -> None:
        served.in_use += 1
        self._unfinished += 1

    def _end(self, served: Served) -> None:
        served.in_use -= 1
        self._unfinished -= 1
        if not served.in_use and served is not self._serving and not self._closing:
            self._in_background(self._tidy())

    async def _tokens(
        self, served: Served, prompt_ids: tuple[int, ...], sampling: Sampling
    ) -> AsyncGenerator[SampledToken]:
        budget = min(sampling.max_tokens, self.context_length - len(prompt_ids))
        sampling = replace(sampling, max_tokens=budget)
        deadline = time.monotonic() + self._wait_seconds
        while True:
            seen = served.restored
            try:
                stream = self._server.stream(served.adapter, prompt_ids, sampling, self._stop_ids)
                async with aclosing(stream) as tokens:
                    async for token in tokens:
                        yield token
            except UnknownAdapterError:
                await self._restore(served, seen)
            except UnreachableError:
                # Nothing was sampled yet, so nothing is lost by asking again.
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _refuse_grammars(self) -> None:
        if not self._server.reads_grammars:
            raise GrammarError(f"the {self._server.name} engine takes no grammars; use embedded or vllm")

    # Versions

    @property
    def _served_folder(self) -> Path:
        return self._home / "served"

    async def _load(self, number: int, write: Callable[[Path], None], *, is_felt: bool) -> Served:
        """Under a name of its own, and tested; nothing is left of one that fails. `write` fills a folder."""
        adapter = f"{PREFIX}{self._run}-{next(self._loads)}-v{number}"
        folder = self._served_folder / adapter
        served = Served(number, adapter, folder, is_felt)
        await asyncio.to_thread(write, folder)
        try:
            await self._bring_up(served)
        except BaseException:
            self._left_folders.append(folder)
            self._in_background(self._server.unload(adapter))
            raise
        return served

    def _write_no_change(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        no_change(self._shape).save(folder, "base")

    async def _bring_up(self, served: Served) -> None:
        """Load it and test it. Raises BadVersionError and EngineError."""
        if served.adapter is None or served.folder is None:
            return
        await self._server.load(served.adapter, served.folder)
        await self._trial.of(served.number, served.adapter, is_felt=served.is_felt)

    async def _restore(self, served: Served, seen: int) -> None:
        """Load a version again that the server has forgotten; once for all requests that found it missing."""
        async with served.restoring:
            if served.restored == seen:
                log.warning("%s has forgotten version %d; loading it again", self._server.name, served.number)
                await self._bring_up(served)
                served.restored += 1

    async def _tidy(self) -> None:
        async with self._changing:
            await self._unload_spare()

    async def _unload_spare(self) -> None:
        """Unload what serves no more, was not named lately, and has no request; with `_changing` held."""
        self._named = [each for each in self._named if each in self._loaded][-KEPT_NAMED:]
        kept = {0, self._serving.number, *self._named}
        left, self._left_folders = self._left_folders, []
        for served in list(self._loaded.values()):
            if served.number in kept or served.in_use:
                continue
            del self._loaded[served.number]  # no request finds it from here on
            if served.adapter is not None and served.folder is not None:
                # A stream that was cut ends in the server a moment later, so its files stay until the next
                # time: a server that has to read them again would fail.
                self._left_folders.append(served.folder)
                try:
                    await self._server.unload(served.adapter)
                except EngineError as error:
                    log.warning("version %d stays loaded: %s", served.number, error)
        for folder in left:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EngineError as error:
            log.warning("an adapter may stay loaded: %s", error)
