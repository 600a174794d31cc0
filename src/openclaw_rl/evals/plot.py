"""The demo's picture: score, and its two halves, after each evaluated update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # before pyplot: there may be no display
import matplotlib.pyplot as plt

from openclaw_rl.evals.held_out import Evaluation


def draw(evaluations: Sequence[Evaluation], ceiling: Evaluation, path: Path) -> None:
    """Write the plot; the suffix of `path` (.png, .svg) chooses the format."""
    versions = [one.version for one in evaluations]
    figure, axes = plt.subplots(figsize=(7, 4), dpi=150)
    axes.plot(
        versions, [one.score for one in evaluations], "o-", color="#b3261e", lw=2.5, label="pleases (both)"
    )
    axes.plot(
        versions, [one.style for one in evaluations], "s--", color="#5f6368", lw=1, label="one short sentence"
    )
    axes.plot(
        versions,
        [one.useful for one in evaluations],
        "^--",
        color="#1a73e8",
        lw=1,
        label="answers the question",
    )
    axes.axhline(ceiling.score, color="#188038", lw=1, ls=":", label="the base model told what to do")
    axes.set_xlabel("updates of 16 turns")
    axes.set_ylabel(f"share of {len(ceiling.replies)} held-out first replies")
    axes.set_xticks(versions)
    axes.set_ylim(-0.02, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
