"""Drawing the next token of several sequences at once, with the log-prob that training needs.

`log_probs` is the one definition of "log-prob" in this project: the sampler, the teacher and the learner
all call it, so the importance ratio at unchanged weights is one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.model import Sampling


def log_probs(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """log softmax(logits / temperature), over the full vocabulary, in float32.

    `logits` is [positions, vocabulary] in any dtype, `temperature` [positions]; 0 (greedy) counts as 1.
    """
    return torch.log_softmax(logits.float() / usable(temperature).unsqueeze(-1), dim=-1)


def usable(temperature: torch.Tensor) -> torch.Tensor:
    """What logits are divided by: 1 in place of 0."""
    return torch.where(temperature > 0, temperature, torch.ones_like(temperature))


class Dice:
    """The random numbers of one request: the same seed gives the same draws, whoever shares its batch."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)

    def roll(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()


@dataclass(frozen=True, slots=True)
class Drawn:
    """One row's token, its log-prob, and the likeliest tokens with theirs where those were asked for."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


def draw(
    logits: torch.Tensor,
    samplings: Sequence[Sampling],
    dice: Sequence[Dice],
    allowed: Mapping[int, torch.Tensor] | None = None,
) -> list[Drawn]:
    """One token for each row of `logits` [rows, vocabulary], and its log-prob as defined above.

    `allowed` has the tokens [vocabulary], bool, that the grammar of a row leaves; rows without one are not
    in it. Grammar, top-k and top-p, in this order, restrict what is drawn and never change a log-prob.
    """
    temperatures = torch.tensor([s.temperature for s in samplings], device=logits.device)
    scores = log_probs(logits, temperatures)
    open_to = _within(scores, allowed) if allowed else scores
    greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
    if len(greedy) == len(samplings):
        chosen = open_to.argmax(-1)
    else:
        chosen = _roll(open_to.exp(), samplings, dice)
        if greedy:
            chosen[greedy] = open_to[greedy].argmax(-1)
    logprobs = scores.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    likeliest = [_likeliest(scores[row], sampling.top_logprobs) for row, sampling in enumerate(samplings)]
    return [Drawn(*each) for each in zip(chosen.tolist(), logprobs.tolist(), likeliest, strict=True)]


def _within(scores: torch.Tensor, allowed: Mapping[int, torch.Tensor]) -> torch.Tensor:
    """The log-probs of the tokens that each row is allowed, made to add up to one again; -inf elsewhere."""
    scores = scores.clone()
    for row, mask in allowed.items():
        left = scores[row].masked_fill(~mask.to(scores.device), -math.inf)
        # Without it a row whose allowed tokens are all unlikely would round to no probability at all.
        scores[row] = torch.log_softmax(left, dim=-1)
    return scores


def _likeliest(scores: torch.Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if not count:
        return ()
    found = scores.topk(min(count, len(scores)))
    return tuple(zip(found.indices.tolist(), found.values.tolist(), strict=True))


def _roll(probabilities: torch.Tensor, samplings: Sequence[Sampling], dice: Sequence[Dice]) -> torch.Tensor:
    """Where each row's roll falls on its cumulative distribution."""
    for row, sampling in enumerate(samplings):
        if sampling.top_k or sampling.top_p < 1:
            probabilities[row] = _restricted(probabilities[row], sampling)
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    rolls = torch.tensor([one.roll() for one in dice], device=probabilities.device).unsqueeze(-1) * total
    # Rounding may lift a roll to the total, past every token of positive probability.
    rolls = torch.minimum(rolls, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, rolls, right=True).squeeze(-1)


def _restricted(probabilities: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero outside the `top_k` likeliest tokens and outside the smallest set that reaches `top_p`."""
    count = min(sampling.top_k, len(probabilities)) if sampling.top_k else len(probabilities)
    values, indices = probabilities.topk(count)
    if sampling.top_p < 1:
        before = values.cumsum(0) - values
        values = torch.where(before < sampling.top_p * values.sum(), values, torch.zeros_like(values))
    return torch.zeros_like(probabilities).scatter(0, indices, values)


def chosen_log_probs(
    logits: torch.Tensor, token_ids: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """`log_probs` of several tokens at each position, without a copy of the whole vocabulary for each.

    `token_ids` and the result are [positions, k].
    """
    scaled = logits.float() / usable(temperature).unsqueeze(-1)
    return scaled.gather(-1, token_ids) - scaled.logsumexp(-1, keepdim=True)
