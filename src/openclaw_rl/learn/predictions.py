"""What a network says at the response positions, in pieces that fit in memory.

A vocabulary is large: the logits of 2,000 positions of a 150,000-token model take 1.2 GB in float32, and
gradients several times that. So the vocabulary projection runs over a few positions at a time and keeps the
numbers that were asked for. Where its gradient is not written out, it runs once more in the backward pass.
Knows no sample and no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.checkpoint import checkpoint

from openclaw_rl.learn.objectives.divergence import entropy
from openclaw_rl.policy.embedded import gradients
from openclaw_rl.policy.embedded.sampler import chosen_log_probs, log_probs

LOGITS_AT_ONCE = 2**24
"""64 MB in float32."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """The distributions that predict the response tokens, one a row.

    `hidden` is [rows, width], what `project` turns into logits [rows, vocabulary]; `temperatures` float32
    [rows] are those the tokens were sampled at. `head` [vocabulary, width] is all that `project` multiplies
    by, where it is that simple and frozen.
    """

    hidden: torch.Tensor
    project: Callable[[torch.Tensor], torch.Tensor]
    temperatures: torch.Tensor
    vocabulary: int
    head: torch.Tensor | None = None
    logits_at_once: int = LOGITS_AT_ONCE

    def __len__(self) -> int:
        return len(self.hidden)

    def split(self, lengths: Sequence[int]) -> list[Predictions]:
        """Consecutive rows, so many in each."""
        return [
            replace(self, hidden=hidden, temperatures=temperatures)
            for hidden, temperatures in zip(
                torch.split(self.hidden, list(lengths)),
                torch.split(self.temperatures, list(lengths)),
                strict=True,
            )
        ]

    def likeliest(self, count: int) -> torch.Tensor:
        """The `count` likeliest tokens, likeliest first: int64 [rows, count], without gradients."""
        with torch.no_grad():
            return self._in_pieces(lambda logits, _: logits.topk(count, dim=-1).indices)

    def log_probs(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Of these tokens, int64 [rows, k], at each row's temperature: float32 [rows, k]."""
        if self.head is None or not torch.is_grad_enabled():
            return self._in_pieces(chosen_log_probs, token_ids)
        pieces = [
            gradients.chosen_log_probs(hidden, self.head, asked, temperatures)
            for hidden, asked, temperatures in self._pieces(token_ids)
        ]
        return torch.cat(pieces)

    def entropy(self) -> torch.Tensor:
        """In nats, of what was sampled from at each row's temperature: float32 [rows]."""
        return self._in_pieces(lambda logits, temperatures: entropy(log_probs(logits, temperatures)))

    def _in_pieces(self, read: Callable[..., torch.Tensor], *by_row: torch.Tensor) -> torch.Tensor:
        """`read(logits, *by_row, temperatures)` for a few rows at a time."""

        def piece(hidden: torch.Tensor, *arguments: torch.Tensor) -> torch.Tensor:
            return read(self.project(hidden), *arguments)

        pieces = self._pieces(*by_row)
        if len(pieces) == 1 or not torch.is_grad_enabled():
            return torch.cat([piece(*arguments) for arguments in pieces])
        # Autograd would keep the logits of every piece for the backward pass.
        return torch.cat([checkpoint(piece, *arguments, use_reentrant=False) for arguments in pieces])

    def _pieces(self, *by_row: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        """Hidden rows, what is said of each, and temperatures, a few rows at a time."""
        rows = max(1, self.logits_at_once // self.vocabulary)
        split = [torch.split(tensor, rows) for tensor in (self.hidden, *by_row, self.temperatures)]
        return list(zip(*split, strict=True))
