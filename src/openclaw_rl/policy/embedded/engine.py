"""The embedded engine's face: requests from asyncio in, sampled tokens out, versions swapped between.

A thread of its own computes; tokens cross to the event loop once per step. A version is loaded beside
the serving one, tested, and only then becomes the one that new requests get. Knows no text.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import torch

from openclaw_rl.config import Settings
from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.embedded import model_files, scoring
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.cores import CoreShare, without_helpers
from openclaw_rl.policy.embedded.grammar import Compiled, Grammars
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import Dice
from openclaw_rl.policy.embedded.scheduler import Running, Scheduler, Weights
from openclaw_rl.policy.embedded.version_files import MODEL_FILE, reading, verified_weights
from openclaw_rl.policy.engine import (
    BadVersionError,
    EngineBusyError,
    EngineError,
    SampledToken,
    UnknownVersionError,
    check_sampling,
    check_scored,
    room_for_reply,
)

KEPT_VERSIONS = 4
"""Versions besides the serving one that stay loaded for requests that name them."""

log = logging.getLogger(__name__)


class EmbeddedGeneration:
    """One request: an async iterator of its tokens."""

    def __init__(self, version: int, abandon: Callable[[], None]) -> None:
        """`abandon` frees what the engine holds for it."""
        self.version = version
        self.loop = asyncio.get_running_loop()
        self._abandon = abandon
        self._queue: asyncio.Queue[SampledToken | EngineError | None] = asyncio.Queue()

    def cancel(self) -> None:
        self._abandon()
        self._queue.put_nowait(None)

    def put(self, item: SampledToken | EngineError) -> None:
        """Hand over the next token; called on the event loop."""
        self._queue.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[SampledToken]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, EngineError):
                raise item
            yield item
            if item.finish:
                return
        self._queue.put_nowait(None)  # for whoever iterates again


class EmbeddedEngine:
    """A `PolicyEngine` on PyTorch."""

    def __init__(
        self,
        network: Network,
        stop_ids: frozenset[int],
        settings: Settings,
        cores: CoreShare,
        tokenizer_file: Path,
    ) -> None:
        """`tokenizer_file` is the model's tokenizer.json; it is read when the first grammar comes."""
        asked = settings.engine.context_length
        self.context_length = min(asked, network.context_length) if asked else network.context_length
        self._network = network
        self._home = settings.home
        self._most_unfinished = settings.engine.max_concurrent + settings.engine.max_waiting
        self._load_options = (settings.model.device, settings.learn.lora_targets)
        self._scheduler = Scheduler(
            stop_ids,
            max_concurrent=settings.engine.max_concurrent,
            prefill_chunk=settings.engine.prefill_chunk,
            cache_tokens=settings.engine.cache_tokens,
        )
        self._grammars = Grammars(tokenizer_file, network.vocabulary, stop_ids)
        self._cores = cores
        self._serving = Weights(0, network, None)
        self._loaded: OrderedDict[int, Weights] = OrderedDict({0: self._serving})
        self._untested: dict[int, Weights] = {}
        self._reading = threading.Lock()  # transformers loads one model at a time, or breaks all later ones
        self._changed = threading.Condition()
        self._jobs: list[tuple[Callable[[], None], Future[None]]] = []
        self._outbox: list[tuple[EmbeddedGeneration, SampledToken | EngineError]] = []
        self._generations: dict[Running, EmbeddedGeneration] = {}
        self._closing = self._shut_down = False
        self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls, settings: Settings, folder: Path, stop_ids: frozenset[int], cores: CoreShare
    ) -> EmbeddedEngine:
        """Load the model in `folder`. Raises UnsupportedModelError or ConfigError."""
        device = model_files.choose_device(settings.model.device)
        dtype = model_files.choose_dtype(settings.model.dtype, device)
        with without_helpers():
            network = _ready(folder, dtype, device, settings.learn.lora_targets)
        return cls(network, stop_ids, settings, cores, folder / "tokenizer.json")

    @property
    def serving_version(self) -> int:
        return self._serving.version

    @property
    def sampled_tokens(self) -> int:
        """Tokens drawn since the engine started."""
        return self._scheduler.counters.sampled_tokens

    @property
    def reused_tokens(self) -> int:
        """Prompt tokens that a kept prefix spared."""
        return self._scheduler.counters.reused_tokens

    def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
    ) -> EmbeddedGeneration:
        room = room_for_reply(prompt_ids, self.context_length)
        check_sampling(sampling)
        self._check_ids(prompt_ids)
        with self._changed:
            weights = self._weights_for(version)
            if self._scheduler.unfinished >= self._most_unfinished:
                raise EngineBusyError("too many requests are waiting; try again in a few seconds")
            running = Running(
                weights=weights,
                prompt_length=len(prompt_ids),
                token_ids=list(prompt_ids),
                sampling=sampling,
                budget=min(sampling.max_tokens, room),
                deliver=lambda token: self._outbox.append((generation, token)),
                dice=Dice(sampling.seed),
                constraint=self._grammars.constraint(sampling.grammar) if sampling.grammar else None,
            )
            generation = EmbeddedGeneration(weights.version, lambda: self._cancel(running))
            self._generations[running] = generation
            self._scheduler.waiting.append(running)
            self._changed.notify()
        return generation

    async def score(
        self,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        *,
        top_logprobs: int = 0,
        version: int | None = None,
    ) -> tuple[SampledToken, ...]:
        check_scored(prompt_ids, reply_ids, self.context_length)
        self._check_ids(prompt_ids + reply_ids)
        with self._changed:
            weights = self._weights_for(version)
        found: list[SampledToken] = []

        def look() -> None:
            found.extend(scoring.scored(weights, prompt_ids, reply_ids, top_logprobs))

        await asyncio.wrap_future(self._submit(look))
        return tuple(found)

    def unlearnable(self, _: Sampling) -> str:
        return ""  # top-p and top-k restrict what is drawn, after the log-probs

    async def prepare_grammar(self, grammar: str) -> Compiled:
        return await self._grammars.ready(grammar)

    async def publish(self, version: PolicyVersion, *, serve: bool = True) -> None:
        weights = self._loaded.get(version.number)
        if weights is None:
            with reading(version):
                weights = await asyncio.to_thread(self._load_weights, version)
        loaded = weights
        await asyncio.wrap_future(self._submit(lambda: self._install(loaded, serve=serve)))

    async def close(self) -> None:
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """Stop the engine's thread; requests that still run get an EngineError. Once is enough."""
        with self._changed:
            if self._shut_down:
                return
            self._shut_down = self._closing = True
            self._changed.notify()
        self._thread.join()
        self._grammars.close()
        self._cores.close()

    def _check_ids(self, token_ids: tuple[int, ...]) -> None:
        """One request's tokens must not end the step that it shares with others. Raises EngineError."""
        if min(token_ids) < 0 or max(token_ids) >= self._network.vocabulary:
            raise EngineError(f"there are tokens outside the vocabulary of {self._network.vocabulary}")

    def _weights_for(self, version: int | None) -> Weights:
        """What a request computes with that names `version`; with the lock held."""
        if self._closing:
            raise EngineError("the engine is closing")
        weights = self._serving if version is None else self._loaded.get(version)
        if weights is None:
            raise UnknownVersionError(f"policy version {version} is not loaded")
        return weights

    def _load_weights(self, version: PolicyVersion) -> Weights:
        """Once for everyone who asks for this version before it is installed."""
        number = version.number
        with self._reading, without_helpers():
            found = self._loaded.get(number) or self._untested.get(number)
            if found is None:
                found = self._read(number, verified_weights(self._home, version))
                self._untested[number] = found
            return found

    def _read(self, number: int, weights: Path) -> Weights:
        folder = weights.parent
        if weights.name == MODEL_FILE:
            device_setting, targets = self._load_options
            device = model_files.choose_device(device_setting)
            network = _ready(folder, self._network.dtype, device, targets)
            if network.context_length < self.context_length:
                raise ValueError(f"its context of {network.context_length} is shorter than ours")
            return Weights(number, network, None)
        adapter = Adapter.load(folder, self._network.adapted)
        return Weights(number, self._network, self._network.prepared(adapter))

    # Below: the engine's thread.

    def _install(self, weights: Weights, *, serve: bool) -> None:
        """Test the weights and let requests have them; what is loaded of this version stays."""
        weights = self._loaded.get(weights.version, weights)
        if weights.version not in self._loaded:
            try:
                scoring.test(weights, self._network.vocabulary)
            finally:
                self._untested.pop(weights.version, None)
        with self._changed:
            self._loaded[weights.version] = weights
            self._loaded.move_to_end(weights.version)
            if serve:
                self._serving = weights
            in_use = self._scheduler.versions_in_use() | {0, self._serving.version}
            spare = [number for number in self._loaded if number not in in_use]
            for number in spare[: max(0, len(spare) - KEPT_VERSIONS)]:
                del self._loaded[number]
                self._scheduler.forget_version(number)

    def _submit(self, job: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        with self._changed:
            if self._closing:
                raise EngineError("the engine is closing")
            self._jobs.append((job, future))
            self._changed.notify()
        return future

    def _cancel(self, running: Running) -> None:
        with self._changed:
            self._scheduler.cancel(running)
            self._generations.pop(running, None)

    def _run(self) -> None:
        try:
            while not self._closing:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._jobs or self._scheduler.has_work)
                with self._cores.working():
                    while not self._closing and (self._jobs or self._scheduler.has_work):
                        self._run_jobs()
                        self._step()
        finally:  # also after an error, which says itself: whoever waited would wait for ever
            with self._changed:
                self._closing = True
            self._fail_all(EngineError("the engine was closed"))
            for _, future in self._jobs:
                if future.set_running_or_notify_cancel():
                    future.set_exception(EngineError("the engine was closed"))

    def _run_jobs(self) -> None:
        with self._changed:
            jobs, self._jobs = self._jobs, []
        for job, future in jobs:
            if not future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                job()
            except EngineError as error:
                future.set_exception(error)
            except torch.OutOfMemoryError as error:
                future.set_exception(EngineError(f"no memory to test it: {error}"))
            except Exception as error:  # a process boundary: weights that cannot compute must not end serving
                log.exception("a version failed its test")
                future.set_exception(BadVersionError(f"it cannot compute: {error}"))
            else:
                future.set_result(None)

    def _step(self) -> None:
        try:
            self._cores.adjust()
            self._scheduler.step()
        except Exception:  # a process boundary: one bad step must not end serving
            log.exception("a forward pass failed; its requests are given up")
            self._fail_all(EngineError("the engine failed while computing this reply"))
        self._post()

    def _fail_all(self, error: EngineError) -> None:
        with self._changed:
            for running in self._scheduler.fail_all():
                if generation := self._generations.pop(running, None):
                    self._outbox.append((generation, error))
        self._post()

    def _post(self) -> None:
        """Send this step's tokens to their event loops."""
        outbox, self._outbox = self._outbox, []
        by_loop: dict[
            asyncio.AbstractEventLoop, list[tuple[EmbeddedGeneration, SampledToken | EngineError]]
        ] = {}
        for generation, item in outbox:
            by_loop.setdefault(generation.loop, []).append((generation, item))
        for loop, items in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put_all, items)
        with self._changed:
            for running in [r for r in self._generations if r.finished]:
                del self._generations[running]


def _ready(folder: Path, dtype: torch.dtype, device: torch.device, adapted: Sequence[str]) -> Network:
    """The model in `folder`, laid out for serving."""
    network = Network.load(folder, dtype=dtype, device=device, adapter_targets=adapted)
    network.prepack()
    return network


def _put_all(items: list[tuple[EmbeddedGeneration, SampledToken | EngineError]]) -> None:
    for generation, item in items:
        generation.put(item)
