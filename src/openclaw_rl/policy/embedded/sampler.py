"""Drawing the next token of several sequences at once, with the log-prob that training needs.

`log_probs` is the one definition of "log-prob" in this project: the sampler, the teacher and the learner
all call it, so the importance ratio at unchanged weights is one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from openclaw_rl.model import Sampling


def log_probs(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """log softmax(logits / temperature), over the full vocabulary, in float32.

    `logits` is [positions, vocabulary] in any dtype, `temperature` [positions]; 0 (greedy) counts as 1.
    """
    divisor = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    return torch.log_softmax(logits.float() / divisor.unsqueeze(-1), dim=-1)


class Dice:
    """The random numbers of one request: the same seed gives the same draws, whoever shares its batch."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)

    def roll(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()


def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], dice: Sequence[Dice]
) -> tuple[list[int], list[float]]:
    """One token for each row of `logits` [rows, vocabulary], and its log-prob as defined above.

    Top-k and top-p restrict what is drawn and never change the log-prob.
    """
    temperatures = torch.tensor([s.temperature for s in samplings], device=logits.device)
    scores = log_probs(logits, temperatures)
    greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
    if len(greedy) == len(samplings):
        chosen = scores.argmax(-1)
    else:
        chosen = _roll(scores.exp(), samplings, dice)
        if greedy:
            chosen[greedy] = scores[greedy].argmax(-1)
    logprobs = scores.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return chosen.tolist(), logprobs.tolist()


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
    divisor = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    scaled = logits.float() / divisor.unsqueeze(-1)
    return scaled.gather(-1, token_ids) - scaled.logsumexp(-1, keepdim=True)
