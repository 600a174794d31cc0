"""Advantages: what a reward, a group, a baseline and a teacher say about each sampled token.

Binary RL takes a turn's reward as the advantage of each of its tokens, OPD the log-prob gap to a teacher
that saw the hint, and Combined adds the two (arXiv 2603.10165). Knows no ratio and no loss.
"""

from __future__ import annotations

import torch

TINY = 1e-6
"""Added to a standard deviation, so that equal rewards give advantages of 0."""


def combined(
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

    All float32 [tokens]. `teacher` and `behaviour` are log-probs of the sampled tokens; where `has_hint`
    (bool) is False there was no teacher, its value is never read, and the second term is exactly 0. Binary
    RL is hint_weight = 0, OPD is reward_weight = 0.
    """
    gap = torch.where(has_hint, teacher - behaviour, torch.zeros_like(behaviour))
    return reward_weight * reward + hint_weight * gap


def group_normalised(reward: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """GRPO's advantage (arXiv 2402.03300): (r - mean) / (std + 1e-6) over the replies to one prompt.

    `reward` is float [samples], `group` int64 [samples], at least one. The deviation is the sample's
    (n - 1). A reply that is alone in its group keeps its reward: live conversations give one to a prompt.
    """
    counts = torch.bincount(group)[group].to(reward.dtype)
    mean = _group_sum(reward, group) / counts
    centred = reward - mean
    variance = _group_sum(centred.square(), group) / (counts - 1).clamp(min=1)
    return torch.where(counts > 1, centred / (variance.sqrt() + TINY), reward)


def next_baseline(baseline: float, mean_reward: float, decay: float) -> float:
    """The running mean of the rewards of past batches, subtracted from the next batch's.

    REINFORCE with a baseline (Williams 1992). It holds past batches only, so it is independent of what it
    corrects.
    """
    return decay * baseline + (1 - decay) * mean_reward


def _group_sum(values: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The sum over each element's group, in the place of the element."""
    sums = torch.zeros(int(group.max()) + 1, dtype=values.dtype, device=values.device)
    return sums.index_add(0, group, values)[group]
