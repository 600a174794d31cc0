"""From the judge's scores of a batch to the one number that each turn's tokens are weighed by.

Several replies to one prompt are compared with each other; a lone reply keeps its score, less the running
baseline where that is switched on. A turn without a verdict, which is there for its hint, takes no part:
it is neither good nor bad. Knows no tokens' log-probs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from openclaw_rl.learn.objectives.advantage import group_normalised
from openclaw_rl.model import Sample


def turn_advantages(samples: Sequence[Sample], baseline: float) -> list[float]:
    """One advantage for each sample, 0 without a verdict; `baseline` is 0 where none is used."""
    found = [0.0] * len(samples)
    judged = [place for place, sample in enumerate(samples) if sample.reward]
    if not judged:
        return found
    prompts = [samples[place].turn.prompt_ids for place in judged]
    replies = Counter(prompts)
    number = {prompt: group for group, prompt in enumerate(replies)}
    normalised = group_normalised(
        torch.tensor([samples[place].reward for place in judged], dtype=torch.float64),
        torch.tensor([number[prompt] for prompt in prompts]),
    ).tolist()
    for place, prompt, advantage in zip(judged, prompts, normalised, strict=True):
        found[place] = advantage - baseline if replies[prompt] == 1 else advantage
    return found


def mean_verdict(samples: Sequence[Sample]) -> float | None:
    """The mean reward of the turns that have a verdict, what a baseline follows; None without any."""
    rewards = [sample.reward for sample in samples if sample.reward]
    return sum(rewards) / len(rewards) if rewards else None
