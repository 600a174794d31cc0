"""Which of several hints teaches a turn: the one whose teacher is closest to what the policy would say.

A teacher whose likely tokens the policy also finds likely can be followed in small steps; one from another
world cannot (overlap-guided selection, v2 of arXiv 2603.10165). Hints come shortest first.
"""

from __future__ import annotations

from typing import Literal

import torch

Rule = Literal["sequence_optimal", "token_optimal", "shortest"]


def overlap(student_ids: torch.Tensor, teacher_ids: torch.Tensor) -> torch.Tensor:
    """How many of the student's top-k tokens are among each teacher's: int64 [hints, tokens].

    `student_ids` is int64 [tokens, k], `teacher_ids` int64 [hints, tokens, k]; ids in a row are distinct.
    """
    same = student_ids[None, :, :, None] == teacher_ids[:, :, None, :]
    return same.any(-1).sum(-1)


def select(shared: torch.Tensor, rule: Rule) -> torch.Tensor:
    """The hint of each token, int64 [tokens], from `overlap`'s counts [hints, tokens].

    sequence_optimal: one hint for the reply, of the largest sum. token_optimal: each token its own.
    shortest: the first. Ties go to the shorter hint.
    """
    tokens = shared.shape[1]
    if rule == "token_optimal":
        return _first_largest(shared)
    chosen = torch.zeros((), dtype=torch.int64, device=shared.device)
    if rule == "sequence_optimal":
        chosen = _first_largest(shared.sum(1))
    return chosen.expand(tokens)


def _first_largest(values: torch.Tensor) -> torch.Tensor:
    """argmax over the first dimension; the lowest index of equal ones, which argmax does not promise."""
    places = torch.arange(len(values), device=values.device).view(-1, *[1] * (values.dim() - 1))
    return torch.where(values == values.amax(0), places, len(values)).amin(0)
