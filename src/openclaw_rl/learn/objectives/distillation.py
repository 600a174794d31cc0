"""Distillation from the whole distribution of a teacher that saw the hint, not from one sampled token.

At each response token a set S of tokens is compared. Log-probs are float32 [tokens, |S|], normalised over
the full vocabulary; `kept` (bool, the same shape) says which entries count, for sets that differ in size:
what stands in the others is never read. `sample` is int64 [tokens]. Both losses are a mean over each
sample's tokens, a token of which nothing is kept adding 0, summed over samples and divided by
`batch_size`; their gradients reach `current` alone. Knows neither how S was chosen nor which hint taught.
"""

from __future__ import annotations

import math

import torch

from openclaw_rl.learn.objectives.surrogate import ratio_of, sum_of_sample_means

MOST_COVERED = math.exp(-1e-7)
"""The mass of S is cut here, so that the tail keeps a positive probability."""


def top_k_surrogate(
    current: torch.Tensor,
    behaviour: torch.Tensor,
    teacher: torch.Tensor,
    kept: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
    max_gap: float,
    clip_low: float,
    clip_high: float,
) -> torch.Tensor:
    """The distillation half of the hybrid objective (v2, arXiv 2603.10165):

    w_v = pi_old(v) / sum_{u in S} pi_old(u),  A_v = w_v clip(log pi_T(v) - log pi_old(v), -C, C),
    L_i = sum_{v in S} max(-A_v rho_v, -A_v clip(rho_v, 1 - low, 1 + high)),  rho_v = pi_theta(v) / pi_old(v)

    where `behaviour` is pi_old and `max_gap` is C. The weights of a token sum to 1, so |A| does not
    exceed C, however many tokens are compared.
    """
    absent = ~kept
    current, old, taught = (
        log_probs.masked_fill(absent, 0.0) for log_probs in (current, behaviour.detach(), teacher.detach())
    )
    # The lowest number, not -inf: where nothing is kept, softmax must not be NaN.
    lowest = torch.finfo(old.dtype).min
    weight = torch.softmax(old.masked_fill(absent, lowest), dim=-1).masked_fill(absent, 0.0)
    advantage = weight * (taught - old).clamp(-max_gap, max_gap)
    ratio = ratio_of(current, old)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = torch.maximum(-advantage * ratio, -advantage * clipped).sum(-1)
    return sum_of_sample_means(per_token, sample) / batch_size


def reverse_kl_with_tail(
    current: torch.Tensor,
    teacher: torch.Tensor,
    kept: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
) -> torch.Tensor:
    """KL(pi_theta || pi_T) over the tokens of S and one bin for all others (arXiv 2603.10165, top-k OPD).

    The tail's log-mass is log(1 - sum_S pi), so that moving mass out of S costs what it should; without
    it the loss could be lowered by leaving S.
    """
    own = current.masked_fill(~kept, float("-inf"))
    taught = teacher.detach().masked_fill(~kept, float("-inf"))
    difference = (current - teacher.detach()).masked_fill(~kept, 0.0)
    inside = (own.exp() * difference).sum(-1)
    own_tail, taught_tail = _log_tail(own), _log_tail(taught)
    per_token = inside + own_tail.exp() * (own_tail - taught_tail)
    return sum_of_sample_means(per_token, sample) / batch_size


def _log_tail(log_probs: torch.Tensor) -> torch.Tensor:
    """log(1 - sum exp(log_probs)) over the last dimension; -inf entries are absent."""
    # Summed as probabilities: log-sum-exp of nothing but -inf has no gradient.
    covered = log_probs.exp().sum(-1)
    return torch.log1p(-covered.clamp(max=MOST_COVERED))
