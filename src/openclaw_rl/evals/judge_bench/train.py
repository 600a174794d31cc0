"""Fits the dialogue act classifier of the rules judge: `python -m openclaw_rl.evals.judge_bench.train`.

Multinomial logistic regression with an L2 penalty by L-BFGS, a minute on two cores; needs the `local` extra.
Writes `judge/data/act_weights.tsv`, the same bytes for the same text up to rounding of floating point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch

from openclaw_rl.evals.judge_bench.training_text import (
    Example,
    development_examples,
    examples,
    fingerprint,
)
from openclaw_rl.judge.act_features import features
from openclaw_rl.judge.dialogue_acts import ACTS

FEWEST = 3
"""A feature that fewer sentences have is left out."""
PENALTY = 0.03
"""L2, on the sum over the examples."""
STEPS = 60
SMALLEST = 2
"""In tenths; a feature none of whose weights is larger is not written."""
DEVELOPMENT_COPIES = 2


def fit(rows: Sequence[Example]) -> dict[str, list[float]]:
    """A weight for each act, by feature. Acts weigh as the inverse square root of their frequency."""
    have = [features(row.sentence, row.request, row.reply) for row in rows]
    counts = Counter(name for names in have for name in names)
    place = {name: i for i, name in enumerate(sorted(name for name, n in counts.items() if n >= FEWEST))}
    known = [[place[name] for name in names if name in place] for names in have]
    row_of = torch.tensor([i for i, row in enumerate(known) for _ in row])
    column_of = torch.tensor([column for row in known for column in row])
    values = torch.tensor([len(row) ** -0.5 for row in known for _ in row])
    matrix = torch.sparse_coo_tensor(torch.stack([row_of, column_of]), values, (len(rows), len(place)))
    matrix = matrix.coalesce()
    labels = torch.tensor([ACTS.index(row.act) for row in rows])
    frequency = torch.bincount(labels, minlength=len(ACTS)).float()
    importance = (frequency.mean() / frequency).sqrt()[labels]
    weights = torch.zeros(len(place), len(ACTS), requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=STEPS, history_size=8, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = torch.sparse.mm(matrix, weights)
        each = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        total = (each * importance).sum() / importance.sum() + PENALTY / len(rows) * weights.square().sum()
        torch.autograd.backward(total)
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    fitted = weights.detach()
    fitted = fitted - fitted.mean(dim=1, keepdim=True)
    return {name: fitted[i].tolist() for name, i in place.items()}


def write(weights: dict[str, list[float]], path: Path) -> None:
    lines = [f"# of the text {fingerprint()}; in tenths; feature", "# " + "\t".join(ACTS)]
    for name in sorted(weights):
        tenths = [round(10 * value) for value in weights[name]]
        if max(map(abs, tenths)) > SMALLEST:
            lines.append("\t".join([name, *(str(value or "") for value in tenths)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    rows = examples() + DEVELOPMENT_COPIES * development_examples()
    path = Path(str(files("openclaw_rl.judge").joinpath("data/act_weights.tsv")))
    write(fit(rows), path)
    print(f"{path}: {path.stat().st_size // 1000} kB from {len(rows)} sentences")


if __name__ == "__main__":
    main()
