"""Samples that the policy has left behind: too unlikely by now, or too likely, to learn from safely.

Token ratios near their bounds can hide a reply that as a whole belongs to another policy. The measure is
the sequence ratio of arXiv 2507.18071, the geometric mean of a reply's token ratios.
"""

from __future__ import annotations

import math

import torch


def sequence_log_ratio(current: torch.Tensor, behaviour: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """mean_tokens (log pi_theta - log pi_behaviour) of each token's sample: float [tokens].

    `current` and `behaviour` are float [tokens], `sample` int64 [tokens]. Carries no gradient.
    """
    difference = (current - behaviour).detach()
    counts = torch.bincount(sample)
    sums = torch.zeros(len(counts), dtype=difference.dtype, device=difference.device)
    return (sums.index_add(0, sample, difference) / counts.clamp(min=1))[sample]


def drifted(
    current: torch.Tensor, behaviour: torch.Tensor, sample: torch.Tensor, *, max_ratio: float
) -> torch.Tensor:
    """Bool [tokens]: the token's sample has a sequence ratio above `max_ratio` or below its inverse."""
    return sequence_log_ratio(current, behaviour, sample).abs() > math.log(max_ratio)
