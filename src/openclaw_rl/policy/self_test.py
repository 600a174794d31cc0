"""The test that a version passes before it serves: the likeliest next tokens of eight fixed prompts.

Every engine asks its new weights for them in its own way; here is what they are asked and which answers
no healthy model gives. Knows no engine and no weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

PROBES = 8
PROBE_TOKENS = 12
LIKELIEST = 8
"""Log-probs told for each probe."""
_ROUNDING = 1e-3

Answer = Sequence[tuple[int, float]]
"""The likeliest next tokens after one probe with their log-probs at temperature 1, the likeliest first."""


def probes(vocabulary: int) -> list[tuple[int, ...]]:
    """Eight prompts of ordinary token ids, the same for every version of a model."""
    return [
        tuple(((2 * probe + 7) * step + 3 * probe + 5) % vocabulary for step in range(PROBE_TOKENS))
        for probe in range(PROBES)
    ]


def fault(answers: Sequence[Answer], vocabulary: int) -> str:
    """Why these are no model's log-probs; empty when they may be."""
    if len(answers) != PROBES or not all(answers):
        return f"answered {sum(map(bool, answers))} of {PROBES} probes"
    for answer in answers:
        logprobs = [logprob for _, logprob in answer]
        if not all(map(math.isfinite, logprobs)):
            return "gives log-probs that are not finite"
        # The likeliest of n tokens has a share of at least 1/n, and all shares together are at most one.
        too_small = max(logprobs) < -math.log(vocabulary) - _ROUNDING
        if too_small or sum(math.exp(min(logprob, 1.0)) for logprob in logprobs) > 1 + _ROUNDING:
            return "gives log-probs that are of no distribution"
    return ""
