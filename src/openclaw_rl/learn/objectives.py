"""The objectives, as pure functions of per-token tensors.

Formulas and numbers are those of OpenClaw-RL (arXiv 2603.10165): Binary RL is the clipped PPO surrogate
with a turn's reward as the advantage of each of its tokens; OPD takes the log-prob gap to a teacher that
saw the hint; Combined adds the two. All tensors are float32 [tokens], the response tokens of a batch end
to end; `sample` is int64 [tokens] and says which sample a token belongs to. Knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before exp, so that no ratio overflows."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A loss with what is worth reporting about it; all but `loss` are plain numbers."""

    loss: torch.Tensor
    mean_ratio: float
    clipped_share: float


def advantages(
    reward: torch.Tensor,
    teacher: torch.Tensor,
    behaviour: torch.Tensor,
    has_hint: torch.Tensor,
    *,
    reward_weight: float,
    hint_weight: float,
) -> torch.Tensor:
    """Combined advantage of each token (v1, appendix of arXiv 2603.10165):

    A_i = reward_weight * r + hint_weight * (log pi_T(a_i | s + hint) - log pi_old(a_i | s))

    `teacher` and `behaviour` are log-probs of the sampled tokens; where `has_hint` (bool) is False there
    was no teacher, its value is never read, and the second term is exactly 0. Binary RL is
    hint_weight = 0, OPD is reward_weight = 0.
    """
    gap = torch.where(has_hint, teacher - behaviour, torch.zeros_like(behaviour))
    return reward_weight * reward + hint_weight * gap


def clipped_surrogate(
    current: torch.Tensor,
    behaviour: torch.Tensor,
    advantage: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
    clip_low: float,
    clip_high: float,
) -> Surrogate:
    """PPO's clipped surrogate with asymmetric bounds (arXiv 1707.06347; bounds of arXiv 2503.14476):

    L = (1/batch) sum_samples mean_tokens max(-A rho, -A clip(rho, 1 - low, 1 + high)),
    rho = exp(log pi_theta - log pi_behaviour)

    `behaviour` holds the log-probs recorded when the tokens were sampled, so rho is the real ratio.
    Tokens of a batch may be given in several calls with the same `batch_size` and the losses added.
    """
    ratio = (current - behaviour).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = torch.maximum(-advantage * ratio, -advantage * clipped)
    cut = (-advantage * clipped > -advantage * ratio).float()
    return Surrogate(
        loss=sum_of_sample_means(per_token, sample) / batch_size,
        mean_ratio=ratio.detach().mean().item(),
        clipped_share=cut.mean().item(),
    )


def kl_to_reference(
    current: torch.Tensor, reference: torch.Tensor, sample: torch.Tensor, *, batch_size: int
) -> torch.Tensor:
    """The k3 estimate of KL(pi_theta || pi_ref) from sampled tokens, averaged like the surrogate:

    exp(d) - d - 1 with d = log pi_ref - log pi_theta, never negative (Schulman, "Approximating KL
    Divergence", 2020).
    """
    difference = (reference - current).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return sum_of_sample_means(difference.exp() - difference - 1, sample) / batch_size


def sum_of_sample_means(values: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """Mean over each sample's tokens, summed over samples: a long reply weighs no more than a short one."""
    counts = torch.bincount(sample)
    return torch.sum(values / counts[sample])
