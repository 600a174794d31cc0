"""Integrated rewards of an episode's steps: how it ended, and what the judge said of each step.

The outcome alone says nothing about which step was good; the judge alone can be talked into anything.
Each step gets both, compared with the same step of the other attempts at the same task (E of arXiv
2603.10165: states cannot be clustered in these environments, step numbers can). Knows no tokens.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

NO_VARIANCE = 1e-12
"""Up to this variance the rewards of a bucket count as equal."""
TINY = 1e-6
"""Added to a standard deviation."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one attempt: `task` names the task group, `index` the step's place in its attempt."""

    task: str
    index: int
    outcome: float
    votes: tuple[float, ...] = ()

    @property
    def reward(self) -> float:
        """R = outcome + mean of the valid votes; without a vote the outcome alone."""
        return self.outcome + (math.fsum(self.votes) / len(self.votes) if self.votes else 0.0)


def step_advantages(steps: Sequence[Step]) -> list[float | None]:
    """(R - mean) / (std + 1e-6) in buckets of (task, index), with the population's deviation.

    A step that is alone in its bucket, which only the longest attempt can be, keeps R. A bucket whose
    rewards are all equal teaches nothing: None, to be left out of the batch. If that would leave nothing
    at all, the first bucket stays, with advantages of 0.
    """
    buckets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        buckets[step.task, step.index].append(place)
    found: list[float | None] = [None] * len(steps)
    for places in buckets.values():
        rewards = [steps[place].reward for place in places]
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)
        if len(places) == 1:
            found[places[0]] = rewards[0]
        elif variance > NO_VARIANCE:
            for place, reward in zip(places, rewards, strict=True):
                found[place] = (reward - mean) / (math.sqrt(variance) + TINY)
    if steps and all(advantage is None for advantage in found):
        for place in next(iter(buckets.values())):
            found[place] = 0.0
    return found
