"""Which sequences get the next forward pass: continuous batching with chunked prefill.

One thread runs `Scheduler.step` over and over. Each step admits waiting requests, computes a bounded
chunk of prompts, and decodes one token for every sequence whose prompt is done. Requests keep the
version they were admitted with; each version decodes in a pass of its own. Knows no asyncio and no text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

import torch

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.arena import Arena, CachedAttention, Span
from openclaw_rl.policy.embedded.decoder import StackedAdapter
from openclaw_rl.policy.embedded.grammar import Constraint
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.prefix_cache import PrefixCache
from openclaw_rl.policy.embedded.sampler import Dice, draw
from openclaw_rl.policy.engine import FinishReason, SampledToken


@dataclass(frozen=True, eq=False, slots=True)
class Weights:
    """What one policy version computes with; compared by identity, since tensors have no truth value."""

    version: int
    network: Network
    adapter: Adapter | StackedAdapter | None


@dataclass(eq=False, slots=True)
class Running:
    """A request on its way: its tokens so far, and how many of them are in the arena."""

    weights: Weights
    prompt_length: int
    token_ids: list[int]
    sampling: Sampling
    budget: int
    deliver: Callable[[SampledToken], None]
    dice: Dice
    constraint: Constraint | None = None
    row: int = -1
    computed: int = 0
    cancelled: bool = False
    finished: bool = False

    @property
    def uncomputed(self) -> int:
        return len(self.token_ids) - self.computed

    @property
    def decoding(self) -> bool:
        return self.uncomputed == 1


@dataclass(slots=True)
class Counters:
    """What the engine has done since it started."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    sampled_tokens: int = 0
    steps: int = 0
    peak_sequences: int = field(default=0)


class Scheduler:
    """Sequences, their rows in the arena, and what finished ones left in the prefix cache."""

    def __init__(
        self, stop_ids: frozenset[int], *, max_concurrent: int, prefill_chunk: int, cache_tokens: int
    ) -> None:
        self._stop_ids = stop_ids
        self._max_concurrent = max_concurrent
        self._prefill_chunk = prefill_chunk
        self._arena = Arena(max_concurrent)
        self._prefixes = PrefixCache(cache_tokens)
        self._cache_tokens = cache_tokens
        self.waiting: deque[Running] = deque()
        self.active: list[Running] = []  # the sequence at index i owns row i
        self.counters = Counters()

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.active)

    @property
    def unfinished(self) -> int:
        return len(self.waiting) + len(self.active)

    def cancel(self, sequence: Running) -> None:
        """Give it up, from any thread: at once while it waits, else at the beginning of the next step."""
        sequence.cancelled = True
        with suppress(ValueError):  # it does not wait any more
            self.waiting.remove(sequence)

    def versions_in_use(self) -> set[int]:
        return {sequence.weights.version for sequence in [*self.waiting, *self.active]}

    def forget_version(self, version: int) -> None:
        self._prefixes.forget_version(version)

    @torch.inference_mode()
    def step(self) -> None:
        """Admit, compute one chunk of prompts, decode one token for everyone who is ready."""
        self._drop_cancelled()
        self._admit()
        self.counters.steps += 1
        for weights, ready in self._by_version(self._prefill_spans()):
            self._forward(weights, ready)
        decoding = [(sequence, 1) for sequence in self.active if sequence.decoding]
        for weights, ready in self._by_version(decoding):
            self._forward(weights, ready)
        if not self.active:
            self._arena.release()

    def fail_all(self) -> list[Running]:
        """Give up on every sequence (after an error in a step); returns them."""
        failed = [*self.active, *self.waiting]
        self.active.clear()
        self.waiting.clear()
        self._arena.release()
        return failed

    def _admit(self) -> None:
        while len(self.active) < self._max_concurrent and (sequence := self._next_waiting()):
            sequence.row = len(self.active)
            self.active.append(sequence)
            # The last prompt token is always computed anew: its logits choose the first reply token.
            known, saved = self._prefixes.longest(sequence.weights.version, sequence.token_ids)
            known = min(known, len(sequence.token_ids) - 1)
            # At once for the whole prompt: room that grows with each chunk would be copied each time.
            self._arena.reserve(len(sequence.token_ids), len(self.active))
            if saved and known:
                self._arena.copy_in(sequence.row, saved, known)
                sequence.computed = known
            self.counters.reused_tokens += known
            self.counters.prompt_tokens += sequence.prompt_length
        self.counters.peak_sequences = max(self.counters.peak_sequences, len(self.active))

    def _next_waiting(self) -> Running | None:
        try:
            return self.waiting.popleft()
        except IndexError:  # empty, perhaps only since another thread cancelled the last
            return None

    def _prefill_spans(self) -> list[tuple[Running, int]]:
        """Sequences with prompt left to compute, and how much of it now: one chunk in all."""
        room, chosen = self._prefill_chunk, []
        for sequence in self.active:
            if room and not sequence.decoding:
                length = min(room, sequence.uncomputed)
                chosen.append((sequence, length))
                room -= length
        return chosen

    @staticmethod
    def _by_version(
        chosen: Sequence[tuple[Running, int]],
    ) -> list[tuple[Weights, list[tuple[Running, int]]]]:
        ordered = sorted(chosen, key=lambda pair: pair[0].weights.version)
        groups = groupby(ordered, key=lambda pair: pair[0].weights)
        return [(weights, list(members)) for weights, members in groups]

    def _forward(self, weights: Weights, ready: Sequence[tuple[Running, int]]) -> None:
        """Compute `length` more tokens of each sequence; draw where that reaches its last token."""
        network = weights.network
        spans: list[Span] = []
        token_ids: list[int] = []
        positions: list[int] = []
        ends: list[int] = []
        drawing: list[Running] = []
        for sequence, length in ready:
            start = sequence.computed
            spans.append(Span(sequence.row, start, length))
            token_ids.extend(sequence.token_ids[start : start + length])
            positions.extend(range(start, start + length))
            sequence.computed += length
            if sequence.uncomputed == 0:
                drawing.append(sequence)
                ends.append(len(token_ids) - 1)
        logits = network.logits(
            torch.tensor(token_ids, device=network.device),
            torch.tensor(positions, device=network.device),
            CachedAttention(self._arena, spans, network.device),
            torch.tensor(ends or [len(token_ids) - 1], device=network.device),
            weights.adapter,
        )
        if drawing:
            self._draw(logits, drawing)

    def _draw(self, logits: torch.Tensor, drawing: Sequence[Running]) -> None:
        allowed = {row: s.constraint.allowed() for row, s in enumerate(drawing) if s.constraint}
        drawn = draw(logits, [s.sampling for s in drawing], [s.dice for s in drawing], allowed)
        for sequence, token in zip(drawing, drawn, strict=True):
            sequence.token_ids.append(token.token_id)
            self.counters.sampled_tokens += 1
            finish = self._finish(sequence)
            if finish:
                sequence.finished = True
                self._leave(sequence)
            elif sequence.constraint:
                sequence.constraint.advance(token.token_id)
            sequence.deliver(SampledToken(token.token_id, token.logprob, finish, token.alternatives))

    def _finish(self, sequence: Running) -> FinishReason | None:
        """Why the sequence ends with its last token, if it does."""
        if sequence.constraint and sequence.constraint.gave_up:
            return "length"
        if sequence.token_ids[-1] in self._stop_ids:
            return "stop"
        used_up = len(sequence.token_ids) - sequence.prompt_length >= sequence.budget
        return "length" if used_up else None

    def _drop_cancelled(self) -> None:
        for sequence in [sequence for sequence in self.active if sequence.cancelled]:
            self._leave(sequence)

    def _leave(self, sequence: Running) -> None:
        """Keep what was computed for a next turn, and let the last row fill the gap."""
        if self._cache_tokens and sequence.computed:
            known = sequence.token_ids[: sequence.computed]
            saved = self._arena.copy_out(sequence.row, sequence.computed)
            self._prefixes.add(sequence.weights.version, known, saved)
        last = self.active[-1]
        if last is not sequence:
            self._arena.move(last.row, sequence.row, last.computed)
            last.row = sequence.row
            self.active[last.row] = last
        self.active.pop()  # last of all: whoever is in no list can be given up by nobody
