"""Supervised learning from the replies that were accepted: what a user would try before any of the others.

The baseline of the experiments. Nothing is learned from a complaint but that its reply is left out. Knows
neither ratio nor teacher.
"""

from __future__ import annotations

import torch

from openclaw_rl.learn.objectives.surrogate import sum_of_sample_means


def imitation(
    current: torch.Tensor, accepted: torch.Tensor, sample: torch.Tensor, *, batch_size: int
) -> torch.Tensor:
    """Cross-entropy of accepted replies, averaged like the other losses:

    L = -(1/batch) sum_samples mean_tokens [accepted] log pi_theta

    `current` is float32 [tokens], the log-probs of the reply's tokens; `accepted` bool [tokens] is the same
    for all tokens of a sample; `sample` is int64 [tokens]. A scalar; its gradient reaches `current`.
    """
    return -sum_of_sample_means(current.masked_fill(~accepted, 0.0), sample) / batch_size
