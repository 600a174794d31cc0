"""PPO's clipped surrogate over tokens, and how tokens and samples are averaged.

Every per-token tensor is float32 [tokens], the response tokens of a batch end to end; `sample` is int64
[tokens] and says which sample a token belongs to. Knows no advantage's origin and no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before exp, so that no ratio overflows."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A loss with what is worth reporting about it.

    `mean_ratio` is of the ratios as they are, before anything is cut. `clipped_share` and
    `truncated_share` are shares of the tokens, in [0, 1]: those the clip keeps still, and those whose
    ratio was above `max_ratio`.
    """

    loss: torch.Tensor
    mean_ratio: float
    clipped_share: float
    truncated_share: float


def clipped_surrogate(
    current: torch.Tensor,
    behaviour: torch.Tensor,
    advantage: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
    clip_low: float,
    clip_high: float,
    max_ratio: float = float("inf"),
) -> Surrogate:
    """PPO's clipped surrogate with asymmetric bounds (arXiv 1707.06347; bounds of arXiv 2503.14476):

    L = (1/batch) sum_samples mean_tokens max(-A rho, -A clip(rho, 1 - low, 1 + high)),
    rho = min(exp(log pi_theta - log pi_behaviour), max_ratio)

    `behaviour` holds the log-probs recorded when the tokens were sampled, so rho is the real ratio.
    `max_ratio` bounds what one bad token can weigh, which the clip alone leaves open (arXiv 1912.09729).
    Tokens of a batch may be given in several calls with the same `batch_size` and the losses added.
    """
    ratio = ratio_of(current, behaviour)
    truncated = ratio.clamp(max=max_ratio)
    unclipped = -advantage * truncated
    clipped = -advantage * truncated.clamp(1 - clip_low, 1 + clip_high)
    cut = (clipped > unclipped).float()
    return Surrogate(
        loss=sum_of_sample_means(torch.maximum(unclipped, clipped), sample) / batch_size,
        mean_ratio=ratio.detach().mean().item(),
        clipped_share=cut.mean().item(),
        truncated_share=(ratio > max_ratio).float().mean().item(),
    )


def ratio_of(current: torch.Tensor, behaviour: torch.Tensor) -> torch.Tensor:
    """exp(current - behaviour), with the difference cut at +-20."""
    return (current - behaviour).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sum_of_sample_means(values: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """Mean over each sample's tokens, summed over samples: a long reply weighs no more than a short one.

    `values` is float [tokens]; all of a sample's tokens must be there, its numbers may have gaps.
    """
    counts = torch.bincount(sample)
    return torch.sum(values / counts[sample])
