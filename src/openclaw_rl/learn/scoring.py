"""Forward passes over packed samples: with gradients for the policy, without for those who only judge it.

Holds the trainable policy and the frozen base, and calls `before_pass` ahead of each pass, so that the
machine can be shared. Knows no reward, no hint and no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.learn.batch import Packed, Scored, packed
from openclaw_rl.learn.predictions import Predictions
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network


@dataclass(frozen=True, slots=True)
class Scorer:
    """`base` is a frozen model; `network` with `adapter` is the policy. They may be one network."""

    network: Network
    adapter: Adapter | None
    base: Network
    tokens_per_pass: int
    before_pass: Callable[[], None]

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def context_length(self) -> int:
        return self.network.context_length

    def predictions(self, group: Packed, *, use_base: bool = False) -> Predictions:
        """Of every response position of the group."""
        self.before_pass()
        network, adapter = (self.base, None) if use_base else (self.network, self.adapter)
        hidden = network.packed_hidden(group.sequences, group.keep(), adapter)
        temperatures = group.temperatures().to(hidden.device)
        return Predictions(hidden, network.project, temperatures, network.vocabulary, network.frozen_head)

    def each(self, parts: Sequence[Scored], *, use_base: bool) -> Iterator[tuple[Scored, Predictions]]:
        """Every part with the predictions of its response tokens; read them without gradients."""
        for group in packed(parts, self.tokens_per_pass):
            with torch.no_grad():
                predictions = self.predictions(group, use_base=use_base)
            yield from zip(group.parts, predictions.split(group.lengths), strict=True)

    @torch.no_grad()
    def log_probs(self, parts: Sequence[Scored], *, use_base: bool = False) -> dict[int, torch.Tensor]:
        """Log-probs of the sampled tokens, without gradients, for each part's index: float32 [tokens]."""
        found: dict[int, torch.Tensor] = {}
        for part, predictions in self.each(parts, use_base=use_base):
            sampled = torch.tensor(part.response_ids, device=self.device).unsqueeze(1)
            found[part.index] = predictions.log_probs(sampled).squeeze(1)
        return found
