"""Which act a sentence of a user's reply is: a small linear classifier over named features.

Multinomial logistic regression whose weights lie in `data/act_weights.tsv`, one readable line a feature. They
are fitted by `openclaw_rl.evals.judge_bench.train` on sentences of our own; nothing here needs a library.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from openclaw_rl.judge.act_features import features

Act = Literal["approve", "task", "follow_up", "neutral", "complain", "instruct", "ask_again"]
"""approve: the reply was good. task: the next thing to do or to know. follow_up: a question about the reply.
neutral: none of these. complain: it was bad. instruct: how it should have been. ask_again: the same again."""

ACTS: tuple[Act, ...] = get_args(Act)


def probabilities(sentence: str, request: str = "", reply: str = "") -> dict[Act, float]:
    """How probable each act is for a sentence after `reply`, the answer to `request`; they sum to 1."""
    weights = _weights()
    known = [row for name in features(sentence, request, reply) if (row := weights.get(name)) is not None]
    # Scaled so that long sentences are no surer than short ones merely for having more features.
    scale = 1 / math.sqrt(max(1, len(known)))
    scores = [scale * sum(row[act] for row in known) for act in range(len(ACTS))]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return {act: power / sum(powers) for act, power in zip(ACTS, powers, strict=True)}


@cache
def _weights() -> dict[str, tuple[float, ...]]:
    text = files("openclaw_rl.judge").joinpath("data/act_weights.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {name: tuple(int(value) / 10 if value else 0.0 for value in values) for name, *values in rows}
