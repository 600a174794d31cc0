"""Running requests on the embedded engine, and the plain transformers model that they are compared with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from openclaw_rl.config import Settings
from openclaw_rl.model import PolicyVersion, Sampling, VersionState
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.engine import EmbeddedEngine, EmbeddedGeneration
from openclaw_rl.policy.embedded.network import Network

CPU = torch.device("cpu")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GREEDY = Sampling(temperature=0, max_tokens=24)
NEVER_STOP: frozenset[int] = frozenset()

StartEngine = Callable[..., EmbeddedEngine]


@dataclass(frozen=True)
class Reply:
    token_ids: list[int]
    logprobs: list[float]
    finish: str | None
    version: int
    alternatives: list[tuple[tuple[int, float], ...]]


async def collect(generation: EmbeddedGeneration) -> Reply:
    tokens = [token async for token in generation]
    return Reply(
        [token.token_id for token in tokens],
        [token.logprob for token in tokens],
        tokens[-1].finish,
        generation.version,
        [token.alternatives for token in tokens],
    )


def ask(
    engine: EmbeddedEngine, prompt: Sequence[int], sampling: Sampling, version: int | None = None
) -> Reply:
    async def one() -> Reply:
        held = await engine.prepare_grammar(sampling.grammar) if sampling.grammar else None  # noqa: F841
        return await collect(engine.generate(tuple(prompt), sampling, version))

    return asyncio.run(one())


def ask_together(engine: EmbeddedEngine, requests: Sequence[tuple[Sequence[int], Sampling]]) -> list[Reply]:
    """All at once from one event loop."""

    async def all_of_them() -> list[Reply]:
        held = [await engine.prepare_grammar(each.grammar) for _, each in requests if each.grammar]  # noqa: F841
        running = [engine.generate(tuple(prompt), sampling) for prompt, sampling in requests]
        return await asyncio.gather(*(collect(generation) for generation in running))

    return asyncio.run(all_of_them())


def publish(engine: EmbeddedEngine, version: PolicyVersion, *, serve: bool = True) -> None:
    asyncio.run(engine.publish(version, serve=serve))


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Ordinary tokens, none of them special."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(3, 300, (length,), generator=generator).tolist())


def new_engine(
    network: Network,
    folder: Path,
    stop_ids: frozenset[int] = NEVER_STOP,
    tokenizer_file: Path = Path("no-tokenizer.json"),
    **options: Any,
) -> EmbeddedEngine:
    """An engine on one thread; `options` are its settings. Only grammars need a tokenizer."""
    settings = Settings(data_dir=folder, model={"device": "cpu"}, engine={"threads": 1, **options})
    return EmbeddedEngine(network, stop_ids, settings, CoreShare(folder, "server", 1), tokenizer_file)


@contextmanager
def running_engine(
    network: Network,
    folder: Path,
    stop_ids: frozenset[int] = NEVER_STOP,
    tokenizer_file: Path = Path("no-tokenizer.json"),
    **options: Any,
) -> Iterator[EmbeddedEngine]:
    """An engine of its own that is shut down at the end of the block."""
    engine = new_engine(network, folder, stop_ids, tokenizer_file, **options)
    try:
        yield engine
    finally:
        engine.shut_down()


def load_network(folder: Path) -> Network:
    return Network.load(folder, dtype=torch.float32, device=CPU, adapter_targets=TARGETS)


def random_adapter(network: Network, seed: int, rank: int = 4, size: float = 0.15) -> Adapter:
    """One that changes every layer."""
    generator = torch.Generator().manual_seed(seed)
    factors = {
        name: (
            torch.randn(rank, layer.in_features, generator=generator) * size,
            torch.randn(layer.out_features, rank, generator=generator) * size,
        )
        for name, layer in network.adapted.items()
    }
    return Adapter(factors, rank, alpha=2.0 * rank)


def written_version(network: Network, folder: Path, number: int) -> PolicyVersion:
    """A version on disk whose adapter is random and of its own."""
    path = folder / f"{number:06d}"
    path.mkdir(parents=True)
    random_adapter(network, seed=number).save(path, "tiny")
    return version_at(path, number)


def version_at(path: Path | None, number: int) -> PolicyVersion:
    text = None if path is None else str(path)
    return PolicyVersion(number, number - 1, VersionState.CANDIDATE, text, None, time.time())


class PlainModel:
    """The same folder loaded by transformers with its own attention, adapters merged into the weights.

    Merged weights compute in float64, so that a difference is ours: rounding them to float32 and adding up
    in another order moved a log-prob by up to 5e-5.
    """

    def __init__(self, folder: Path, adapter: Adapter | None = None) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        if adapter is not None:
            self.model.double()
            with torch.no_grad():
                for name, (down, up) in adapter.factors.items():
                    self.model.get_submodule(name).weight += adapter.scale * up @ down

    @torch.no_grad()
    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        logits: torch.Tensor = self.model(torch.tensor([list(token_ids)]), use_cache=False).logits[0]
        return logits

    def greedy(self, prompt_ids: Sequence[int], count: int) -> list[int]:
        """`count` tokens, a whole forward pass for each."""
        token_ids = list(prompt_ids)
        for _ in range(count):
            token_ids.append(int(self.logits(token_ids)[-1].argmax()))
        return token_ids[len(prompt_ids) :]

    def logprobs(self, prompt_ids: Sequence[int], reply: Sequence[int], temperature: float) -> list[float]:
        """Of the reply's tokens, teacher-forced, as the engine contract defines them."""
        logits = self.logits([*prompt_ids, *reply])[len(prompt_ids) - 1 : -1]
        scores = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
        return scores.gather(-1, torch.tensor(list(reply)).unsqueeze(-1)).squeeze(-1).tolist()

    def assert_gave(self, prompt_ids: Sequence[int], sampling: Sampling, reply: Reply) -> None:
        """Fail unless the reply's recorded log-probs are this model's."""
        expected = self.logprobs(prompt_ids, reply.token_ids, sampling.temperature)
        apart = max(abs(one - other) for one, other in zip(reply.logprobs, expected, strict=True))
        assert apart < 1e-4
