"""How far the policy is from a reference, estimated from sampled tokens, and its entropy.

With x drawn from pi_theta and d = log pi_ref(x) - log pi_theta(x), KL(pi_theta || pi_ref) is estimated by
k1 = -d (unbiased, high variance), k2 = d^2 / 2 (biased, and its gradient is the KL's) or
k3 = exp(d) - d - 1 (unbiased, never negative): Schulman, "Approximating KL Divergence", 2020.
"""

from __future__ import annotations

from typing import Literal

import torch

from openclaw_rl.learn.objectives.surrogate import MAX_LOG_RATIO, sum_of_sample_means

Estimator = Literal["k1", "k2", "k3"]
LossEstimator = Literal["k2", "k3"]


def kl_per_token(current: torch.Tensor, reference: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """The estimate at each token; both log-probs are float [tokens]. d is cut at +-20."""
    difference = (reference - current).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    return difference.exp() - difference - 1


def kl_loss(
    current: torch.Tensor,
    reference: torch.Tensor,
    sample: torch.Tensor,
    *,
    batch_size: int,
    estimator: LossEstimator,
) -> torch.Tensor:
    """The estimate as a loss, averaged like the surrogate.

    k1 is no loss: over samples of the policy its gradient is zero on average. It belongs in the
    advantage, as `kl_per_token` of the behaviour's log-probs, subtracted.
    """
    return sum_of_sample_means(kl_per_token(current, reference, estimator), sample) / batch_size


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    """In nats, of whole distributions: finite log-probs [positions, vocabulary] to [positions]."""
    return -(log_probs.exp() * log_probs).sum(-1)
