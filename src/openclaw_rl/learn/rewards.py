"""From the judge's scores of a batch to the one number that each turn's tokens are weighed by.

Several replies to one prompt are compared with each other; a lone reply keeps its score, less the running
baseline where that is switched on. Knows no tokens' log-probs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from openclaw_rl.learn.objectives.advantage import group_normalised
from openclaw_rl.model import Sample


def turn_advantages(samples: Sequence[Sample], baseline: float) -> list[float]:
    """One advantage for each sample; `baseline` is 0 where none is used."""
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float64)
    numbers: dict[tuple[int, ...], int] = {}
    groups = [numbers.setdefault(sample.turn.prompt_ids, len(numbers)) for sample in samples]
    group = torch.tensor(groups)
    alone = torch.bincount(group)[group] == 1
    normalised = group_normalised(rewards, group)
    # Without a verdict there is nothing to compare with the baseline: hint-only turns stay at 0.
    scored = rewards != 0
    centred = torch.where(alone & scored, normalised - baseline, normalised)
    found: list[float] = centred.tolist()
    return found
