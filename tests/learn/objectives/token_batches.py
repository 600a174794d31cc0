"""Batches of tokens as hypothesis draws them: plain numbers, sample after sample, and their tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

import torch
from hypothesis import strategies as st
from objective_formulas import Entry, log_softmax

Token = TypeVar("Token")

log_probs = st.sampled_from([-300.0, 0.0, -1.0]) | st.floats(-300, 0)
numbers = st.floats(-50, 50)
moderate_logits = st.floats(-3, 3)
logits = moderate_logits | st.floats(-150, 150)
"""Of one token; a few of them make distributions from flat to all mass in one place."""


@dataclass(frozen=True)
class Batch(Generic[Token]):
    """Samples of one token or more each."""

    samples: list[list[Token]]

    @property
    def tokens(self) -> list[Token]:
        return [token for sample in self.samples for token in sample]

    @property
    def owners(self) -> list[int]:
        return [index for index, sample in enumerate(self.samples) for _ in sample]

    def column(self, place: int) -> list[Any]:
        """One field of every token."""
        return [token[place] for token in self.tokens]  # type: ignore[index]

    def shuffled(self, random: Random) -> Batch[Token]:
        return Batch(random.sample(self.samples, len(self.samples)))

    def passes(self, cut: int) -> list[Batch[Token]]:
        return [Batch(part) for part in (self.samples[:cut], self.samples[cut:]) if part]


def batches(token: st.SearchStrategy[Token]) -> st.SearchStrategy[Batch[Token]]:
    samples = st.lists(st.lists(token, min_size=1, max_size=6), min_size=1, max_size=4)
    return samples.map(Batch)


@st.composite
def compared_batches(draw: st.DrawFn, min_size: int = 1) -> Batch[list[Entry]]:
    """Tokens with log-probs that need not be distributions; some entries do not count."""
    size = draw(st.integers(min_size, 4))
    entry = st.builds(Entry, log_probs, log_probs, log_probs, st.booleans())
    return draw(batches(st.lists(entry, min_size=size, max_size=size)))


@st.composite
def distribution_batches(
    draw: st.DrawFn,
    values: st.SearchStrategy[float] = logits,
    left_out: int | None = None,
    kept: st.SearchStrategy[bool] = st.booleans(),  # noqa: B008 (strategies are values)
) -> Batch[list[Entry]]:
    """Tokens with the log-probs of three distributions over a small vocabulary, but for `left_out` of it."""
    size = draw(st.integers(2, 6))
    left_out = left_out or draw(st.integers(1, size - 1))
    one = st.lists(values, min_size=size, max_size=size).map(log_softmax)
    token = st.tuples(one, one, one, st.lists(kept, min_size=size, max_size=size)).map(
        lambda lists: [Entry(*values) for values in zip(*lists, strict=True)][: size - left_out]
    )
    return draw(batches(token))


def double(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class SetTensors:
    """The tensors of tokens with sets: log-probs and `kept` are [tokens, entries]."""

    current: torch.Tensor
    behaviour: torch.Tensor
    teacher: torch.Tensor
    kept: torch.Tensor
    sample: torch.Tensor


def set_tensors(
    batch: Batch[list[Entry]], dtype: torch.dtype = torch.float64, in_the_gaps: float = math.nan
) -> SetTensors:
    """The tensors of a batch. What does not count is NaN: who reads it is found out."""

    def field(place: int) -> torch.Tensor:
        return torch.tensor(
            [[e[place] if e.kept else in_the_gaps for e in entries] for entries in batch.tokens], dtype=dtype
        )

    kept = torch.tensor([[entry.kept for entry in entries] for entries in batch.tokens])
    return SetTensors(field(0).requires_grad_(), field(1), field(2), kept, torch.tensor(batch.owners))
