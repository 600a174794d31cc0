"""Forward passes over packed samples: with gradients for the policy, without for those who only judge it.

Holds the trainable policy and the frozen base, and calls `before_pass` ahead of each pass, so that the
machine can be shared. Knows no reward, no hint and no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.learn.batch import Packed, Scored, packed
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import token_log_probs


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

    def logits(self, group: Packed, *, use_base: bool = False) -> torch.Tensor:
        """Of every response position of the group: [response tokens, vocabulary]."""
        self.before_pass()
        network, adapter = (self.base, None) if use_base else (self.network, self.adapter)
        return network.packed_logits(group.sequences, group.keep(), adapter)

    def sampled(self, group: Packed, logits: torch.Tensor) -> torch.Tensor:
        """Log-probs of the tokens that were sampled, from the group's logits: float32 [response tokens]."""
        device = logits.device
        return token_log_probs(logits, group.targets().to(device), group.temperatures().to(device))

    def each(self, parts: Sequence[Scored], *, use_base: bool) -> Iterator[tuple[Scored, torch.Tensor]]:
        """Every part with its logits [its response tokens, vocabulary], without gradients."""
        for group in packed(parts, self.tokens_per_pass):
            with torch.no_grad():
                logits = self.logits(group, use_base=use_base)
            yield from zip(group.parts, torch.split(logits, group.lengths), strict=True)

    def log_probs(self, parts: Sequence[Scored], *, use_base: bool = False) -> dict[int, torch.Tensor]:
        """Log-probs of the sampled tokens, without gradients, for each part's index: float32 [tokens]."""
        found: dict[int, torch.Tensor] = {}
        for part, logits in self.each(parts, use_base=use_base):
            found[part.index] = self.sampled(Packed((part,)), logits)
        return found
