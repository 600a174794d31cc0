"""Distillation from the whole distribution of a teacher that saw the hint, not from one sampled token.

At each response token a set S of tokens is compared. Log-probs are float32 [tokens, |S|], normalised over
the full vocabulary; `kept` (bool, the same shape) leaves entries out, for sets that differ in size.
`sample` is int64 [tokens]. Knows neither how S was chosen nor which hint the teacher saw.
"""

from __future__ import annotations

import torch

from openclaw_rl.learn.objectives.surrogate import Surrogate, ratio_of, sum_of_sample_means

MOST_COVERED = -1e-7
"""The covered log-mass is cut here, so that the tail keeps a positive probability."""


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
) -> Surrogate:
    """The distillation half of the hybrid objective (v2, arXiv 2603.10165):

    w_v = pi_old(v) / sum_{u in S} pi_old(u),  A_v = w_v clip(log pi_T(v) - log pi_old(v), -C, C),
    L_i = sum_{v in S} max(-A_v rho_v, -A_v clip(rho_v, 1 - low, 1 + high)),  rho_v = pi_theta(v) / pi_old(v)

    averaged over each sample's tokens and summed over samples / batch. `behaviour` is pi_old and
    `max_gap` is C. No gradient reaches `behaviour` or `teacher`. A token without any kept entry adds 0.
    """
    old = behaviour.detach().masked_fill(~kept, float("-inf"))
    nothing = ~kept.any(-1, keepdim=True)
    weight = torch.softmax(old.masked_fill(nothing, 0.0), dim=-1).masked_fill(~kept, 0.0)
    gap = (teacher.detach() - behaviour.detach()).masked_fill(~kept, 0.0).clamp(-max_gap, max_gap)
    advantage = weight * gap
    ratio = ratio_of(current.masked_fill(~kept, 0.0), behaviour.detach().masked_fill(~kept, 0.0))
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    each = torch.maximum(-advantage * ratio, -advantage * clipped)
    cut = (-advantage * clipped > -advantage * ratio) & kept
    count = kept.sum().clamp(min=1)
    return Surrogate(
        loss=sum_of_sample_means(each.sum(-1), sample) / batch_size,
        mean_ratio=((ratio.detach() * kept).sum() / count).item(),
        clipped_share=(cut.sum() / count).item(),
    )


def reverse_kl_with_tail(
    current: torch.Tensor,
    teacher: torch.Tensor,
    kept: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
) -> torch.Tensor:
    """KL(pi_theta || pi_T) over the |S| kept tokens and one bin for all others, averaged as above.

    The tail's log-mass is log(1 - sum_S pi), so that moving mass out of S costs what it should; without
    it the loss could be lowered by leaving S. Gradients reach `current` alone.
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
    return torch.log1p(-covered.clamp(max=_MOST_MASS))


_MOST_MASS = float(torch.tensor(MOST_COVERED, dtype=torch.float64).exp())
