"""What the stand-ins for inference servers share: our tiny model, adapters by name, a token at a time.

Every token is a whole forward pass of our Network, so log-probs are real and nothing is cached. Like the
real ones it reads an adapter's files again when it likes; it dies if they are gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import uvicorn
from engine_runs import load_network
from running_processes import eventually, free_port
from starlette.types import ASGIApp

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.grammar import Constraint


@dataclass(frozen=True)
class Asked:
    """How one reply is drawn."""

    prompt: tuple[int, ...]
    most: int
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    constraint: Constraint | None = None


@dataclass
class Step:
    """One token, with the log-probs it was drawn from: float32 [vocabulary]."""

    token_id: int
    scores: torch.Tensor
    finish: str | None

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        found = self.scores.topk(count)
        return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))

    @property
    def logprob(self) -> float:
        return float(self.scores[self.token_id])


@dataclass
class TinyServer:
    """The state of one server. Tests set what goes wrong."""

    folder: Path
    adapters: dict[str, str] = field(default_factory=dict)
    running: int = 0
    begun: int = 0
    asked_by: list[str | None] = field(default_factory=list)
    """The adapter of each request for a reply, in order."""
    dead: str = ""
    delay: float = 0.0
    """Seconds before each token."""
    cut_after: int | None = None
    """The connection is cut after so many tokens of a reply."""
    gives_up_after: int | None = None
    """Another user of the server aborts the reply after so many tokens."""
    ignores_adapters: bool = False
    tells_raw: bool = False
    """Log-probs of before the temperature."""
    busy: int = 0
    """So many of the next requests are refused."""
    most_rank: int = 8
    slots: list[Adapter] = field(default_factory=list)
    """Every adapter that was ever loaded, in order: unloading only makes a name unknown."""

    def __post_init__(self) -> None:
        self.network = load_network(self.folder)
        self.context = self.network.context_length
        self._computing = threading.Lock()

    def restart(self) -> None:
        """As a server that is new: registrations live in memory alone."""
        self.adapters.clear()

    def close(self) -> None:
        """End what it has started itself."""

    def load(self, name: str, path: str) -> None:
        """Raises FileNotFoundError and ValueError."""
        adapter = Adapter.load(Path(path), self.network.adapted)
        if adapter.rank > self.most_rank:
            raise ValueError(f"LoRA rank {adapter.rank} is greater than max_lora_rank {self.most_rank}.")
        self.adapters[name] = path
        self.slots.append(adapter)

    async def steps(
        self, adapter: str | None, asked: Asked, *, raw_greedy: bool = True
    ) -> AsyncIterator[Step]:
        self.begun += 1
        self.running += 1
        self.asked_by.append(adapter)
        try:
            factors = self._factors(adapter)
            generator = torch.Generator()
            if asked.seed is None:
                generator.seed()
            else:
                generator.manual_seed(asked.seed)
            ids = list(asked.prompt)
            for place in range(min(asked.most, self.context - len(asked.prompt))):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if place == self.cut_after:
                    raise ConnectionAbortedError("cut, as the test wants it")
                step = await asyncio.to_thread(self._step, ids, factors, asked, generator)
                ids.append(step.token_id)
                if asked.constraint and step.token_id not in asked.stop_ids:
                    asked.constraint.advance(step.token_id)
                if step.token_id in asked.stop_ids:
                    step.finish = "stop"
                elif place + 1 == min(asked.most, self.context - len(asked.prompt)):
                    step.finish = "length"
                if place + 1 == self.gives_up_after:
                    step.finish = "abort"
                yield step
                if step.finish:
                    return
        finally:
            self.running -= 1

    def scores(self, adapter: str | None, ids: Sequence[int]) -> torch.Tensor:
        """Log-probs of what follows each token: float32 [tokens, vocabulary]."""
        with self._computing, torch.inference_mode():
            logits = self.network.packed_logits([ids], torch.arange(len(ids)), self._factors(adapter))
        return torch.log_softmax(logits.float(), dim=-1)

    def _factors(self, adapter: str | None) -> Adapter | None:
        if adapter is None or self.ignores_adapters:
            return None
        try:
            return Adapter.load(Path(self.adapters[adapter]), self.network.adapted)
        except FileNotFoundError as error:
            self.dead = f"the files of {adapter} are gone"
            raise RuntimeError(self.dead) from error

    def _step(
        self, ids: list[int], factors: Adapter | None, asked: Asked, generator: torch.Generator
    ) -> Step:
        with self._computing, torch.inference_mode():
            last = torch.tensor([len(ids) - 1])
            logits = self.network.packed_logits([ids], last, factors)[0].float()
        scores = torch.log_softmax(logits / (asked.temperature or 1.0), dim=-1)
        allowed = (
            asked.constraint.allowed() if asked.constraint else torch.ones_like(scores, dtype=torch.bool)
        )
        left = _restricted(torch.log_softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1), asked)
        if asked.temperature:
            token_id = int(torch.multinomial(left.exp(), 1, generator=generator))
        else:
            token_id = int(left.argmax())
        told = torch.log_softmax(logits, dim=-1) if self.tells_raw else self.told(scores, left)
        return Step(token_id, told, None)

    def told(self, scores: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        """Which log-probs it tells: of the full vocabulary; one that tells those of what is left says so."""
        return scores


def _restricted(scores: torch.Tensor, asked: Asked) -> torch.Tensor:
    """The log-probs of what top-k and top-p leave, made to add up to one again."""
    order = scores.argsort(descending=True)
    keep = torch.zeros_like(scores, dtype=torch.bool)
    count = asked.top_k or len(scores)
    before = scores[order].exp().cumsum(0) - scores[order].exp()
    keep[order[(before < asked.top_p) & (torch.arange(len(scores)) < count)]] = True
    return torch.log_softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)


class Listening:
    """An app behind a port that can be closed and opened again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self.port, log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        eventually(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()
