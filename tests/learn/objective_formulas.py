"""The formulas of learning once more, number by number: what the tensor code is measured against.

Written from the papers alone (arXiv 2603.10165, 2402.03300, 2507.18071, Schulman 2020) in Python's floats,
which are float64. Knows no tensor and nothing of the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Bounds(NamedTuple):
    """Of a ratio: 1 - low, 1 + high, and where it is truncated."""

    low: float = 0.2
    high: float = 0.28
    most: float = math.inf


class Entry(NamedTuple):
    """One token of a compared set: its log-prob under each of the three, and whether it counts."""

    current: float
    behaviour: float
    teacher: float
    kept: bool = True


def between(low: float, value: float, high: float) -> float:
    return min(high, max(low, value))


def ratio(current: float, behaviour: float) -> float:
    return math.exp(between(-20.0, current - behaviour, 20.0))


def clipped(current: float, behaviour: float, advantage: float, bounds: Bounds) -> float:
    """PPO's loss of one token (B.3)."""
    rho = min(ratio(current, behaviour), bounds.most)
    bounded = between(1 - bounds.low, rho, 1 + bounds.high)
    return max(-advantage * rho, -advantage * bounded)


def over_samples(values: Sequence[float], samples: Sequence[int], batch_size: int) -> float:
    """The mean over each sample's tokens, summed over samples, over the batch's size."""
    total = 0.0
    for sample in set(samples):
        own = [value for value, owner in zip(values, samples, strict=True) if owner == sample]
        total += math.fsum(own) / len(own)
    return total / batch_size


def log_sum(log_masses: Sequence[float]) -> float:
    """log sum exp; of nothing, log 0."""
    largest = max(log_masses, default=-math.inf)
    if largest == -math.inf:
        return -math.inf
    return largest + math.log(math.fsum(math.exp(one - largest) for one in log_masses))


def hybrid_advantages(entries: Sequence[Entry], max_gap: float) -> list[float]:
    """A_v = w_v clip(gap_v) of the entries that count, 0 of the others (D.2)."""
    whole = log_sum([entry.behaviour for entry in entries if entry.kept])
    return [
        math.exp(entry.behaviour - whole) * between(-max_gap, entry.teacher - entry.behaviour, max_gap)
        if entry.kept
        else 0.0
        for entry in entries
    ]


def hybrid(entries: Sequence[Entry], max_gap: float, bounds: Bounds) -> float:
    """L_i of one response token (D.2)."""
    advantages = hybrid_advantages(entries, max_gap)
    return math.fsum(
        clipped(entry.current, entry.behaviour, advantage, bounds)
        for entry, advantage in zip(entries, advantages, strict=True)
        if entry.kept
    )


def log_tail(log_probs: Sequence[float]) -> float:
    """Log of the mass outside, with the mass inside kept from reaching 1 (C.4)."""
    inside = min(log_sum(log_probs), -1e-7)
    return math.log(-math.expm1(inside))


def reverse_kl(entries: Sequence[Entry]) -> float:
    """KL(current || teacher) over the entries that count and one bin for all else (C.4)."""
    counted = [entry for entry in entries if entry.kept]
    mine, theirs = (
        [*log_probs, log_tail(log_probs)]
        for log_probs in ([entry.current for entry in counted], [entry.teacher for entry in counted])
    )
    return math.fsum(math.exp(p) * (p - q) for p, q in zip(mine, theirs, strict=True))


def kl_estimate(current: float, reference: float, estimator: str) -> float:
    d = between(-20.0, reference - current, 20.0)
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - d - 1}[estimator]


def log_softmax(logits: Sequence[float]) -> list[float]:
    whole = log_sum(logits)
    return [logit - whole for logit in logits]


def entropy(logits: Sequence[float]) -> float:
    return -math.fsum(math.exp(one) * one for one in log_softmax(logits))


def combined_advantage(
    reward: float, teacher: float | None, behaviour: float, *, reward_weight: float, hint_weight: float
) -> float:
    """The sum of both signals; None is a token that had no teacher (D.1)."""
    gap = 0.0 if teacher is None else teacher - behaviour
    return reward_weight * reward + hint_weight * gap


def group_advantages(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """GRPO's, with the sample's deviation; who is alone keeps the reward."""
    found = []
    for reward, group in zip(rewards, groups, strict=True):
        peers = [other for other, theirs in zip(rewards, groups, strict=True) if theirs == group]
        if len(peers) == 1:
            found.append(reward)
            continue
        mean = math.fsum(peers) / len(peers)
        variance = math.fsum((peer - mean) ** 2 for peer in peers) / (len(peers) - 1)
        found.append((reward - mean) / (math.sqrt(variance) + 1e-6))
    return found


def mean_log_ratios(
    current: Sequence[float], behaviour: Sequence[float], samples: Sequence[int]
) -> list[float]:
    """Of each token's sample, the mean over its tokens."""
    found = []
    for owner in samples:
        own = [c - b for c, b, other in zip(current, behaviour, samples, strict=True) if other == owner]
        found.append(math.fsum(own) / len(own))
    return found


def shared_tokens(
    student: Sequence[Sequence[int]], hints: Sequence[Sequence[Sequence[int]]]
) -> list[list[int]]:
    """O[h, i], how many tokens of the two sets are the same (D.2)."""
    return [
        [len(set(mine) & set(theirs)) for mine, theirs in zip(student, teacher, strict=True)]
        for teacher in hints
    ]


def chosen_hints(shared: Sequence[Sequence[int]], rule: str) -> list[int]:
    """h* of each token; ties go to the lowest index (D.2)."""
    tokens = len(shared[0])
    if rule == "shortest":
        return [0] * tokens
    if rule == "sequence_optimal":
        sums = [sum(counts) for counts in shared]
        return [sums.index(max(sums))] * tokens
    columns = [[counts[token] for counts in shared] for token in range(tokens)]
    return [column.index(max(column)) for column in columns]


def step_advantages(rewards: Sequence[float], buckets: Sequence[tuple[str, int]]) -> list[float | None]:
    """Step-wise advantages with the population's deviation (E.2); None is a step that is left out."""
    found: list[float | None] = []
    for reward, bucket in zip(rewards, buckets, strict=True):
        peers = [other for other, theirs in zip(rewards, buckets, strict=True) if theirs == bucket]
        mean = math.fsum(peers) / len(peers)
        variance = math.fsum((peer - mean) ** 2 for peer in peers) / len(peers)
        if len(peers) == 1:
            found.append(reward)
        elif variance <= 1e-12:
            found.append(None)
        else:
            found.append((reward - mean) / (math.sqrt(variance) + 1e-6))
    if found and all(value is None for value in found):
        return [0.0 if bucket == buckets[0] else None for bucket in buckets]
    return found
