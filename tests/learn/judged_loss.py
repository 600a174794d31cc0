"""The loss of a batch computed step by step in float64 from full rows of log-probs, one sample at a time.

Reads the same tiny model as the code under test, but unpacked, and chooses tokens, hints and weights with
the formulas of `objective_formulas`. Knows nothing of the learner's code but its settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from objective_formulas import (
    Bounds,
    Entry,
    chosen_hints,
    clipped,
    combined_advantage,
    entropy,
    hybrid,
    hybrid_advantages,
    kl_estimate,
    log_softmax,
    mean_log_ratios,
    ratio,
    reverse_kl,
    shared_tokens,
)

from openclaw_rl.config import LearnSettings
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network

Row = list[float]
"""Log-probs of the whole vocabulary."""


def top(row: Row, k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda token: -row[token])[:k]


@dataclass
class Reference:
    """The policy is `network` with `adapter`, the base is `network` alone."""

    network: Network
    adapter: Adapter
    template: ChatTemplate
    settings: LearnSettings
    chosen: list[int] = field(default_factory=list)
    """The hint of each token that has a teacher, as places in the order of their lengths."""

    def rows(self, sample: Sample, hint: str | None = None, *, use_base: bool = False) -> list[Row]:
        """At each token of the reply, after the prompt or after the prompt with the hint."""
        turn = sample.turn
        prompt = turn.prompt_ids
        if hint is not None:
            (asked,) = turn.messages
            prompt = self.template.prompt_ids([{**asked, "content": f"{asked['content']}\n\n{hint}"}])
        keep = torch.arange(len(prompt) - 1, len(prompt) + len(turn.response_ids) - 1)
        with torch.no_grad():
            logits = self.network.packed_logits(
                [(prompt + turn.response_ids)[:-1]], keep, None if use_base else self.adapter
            )
        divisor = turn.sampling.temperature or 1.0
        return [log_softmax([logit / divisor for logit in row]) for row in logits.tolist()]

    def of(self, samples: Sequence[Sample], advantages: Sequence[float]) -> float:
        """Mean over each sample's tokens, summed, over the batch's size."""
        total = 0.0
        for sample, advantage in zip(samples, advantages, strict=True):
            each = self._of_tokens(sample, advantage)
            total += sum(each) / len(each)
        return total / len(samples)

    def _of_tokens(self, sample: Sample, advantage: float) -> list[float]:
        settings = self.settings
        rows = self.rows(sample)
        losses = [
            clipped(current, behaviour, weighed, self.bounds)
            for current, behaviour, weighed in self.sampled(sample, rows, advantage)
        ]
        if settings.method in ("hybrid", "opd_top_k"):
            for place, entries in enumerate(self.compared(sample, rows)):
                of_token = (
                    hybrid(entries, settings.max_gap, self.bounds)
                    if settings.method == "hybrid"
                    else reverse_kl(entries)
                )
                losses[place] += settings.hint_weight * of_token
        if settings.kl_weight and settings.kl_estimator != "k1":
            base = self.rows(sample, use_base=True)
            for place, token in enumerate(sample.turn.response_ids):
                estimate = kl_estimate(rows[place][token], base[place][token], settings.kl_estimator)
                losses[place] += settings.kl_weight * estimate
        return [loss - settings.entropy_weight * entropy(row) for loss, row in zip(losses, rows, strict=True)]

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.settings.clip_low, self.settings.clip_high, self.settings.max_ratio)

    def sampled(self, sample: Sample, rows: list[Row], advantage: float) -> list[tuple[float, float, float]]:
        """(current, behaviour, advantage) of each sampled token; advantage 0 if the policy has drifted."""
        settings, turn = self.settings, sample.turn
        taught = None
        if settings.method in ("opd", "combined") and sample.hint:
            taught = self.rows(sample, sample.hint, use_base=settings.teacher == "base")
        scored = settings.method in ("binary", "combined", "hybrid")
        base = self.rows(sample, use_base=True)
        found = []
        for place, (token, behaviour) in enumerate(zip(turn.response_ids, turn.logprobs, strict=True)):
            weighed = combined_advantage(
                advantage,
                taught[place][token] if taught else None,
                behaviour,
                reward_weight=settings.reward_weight if scored else 0.0,
                hint_weight=settings.hint_weight,
            )
            if settings.kl_estimator == "k1":
                weighed -= settings.kl_weight * kl_estimate(behaviour, base[place][token], "k1")
            found.append((rows[place][token], behaviour, weighed))
        measure = mean_log_ratios([c for c, _, _ in found], turn.logprobs, [0] * len(found))[0]
        left_behind = max(ratio(measure, 0.0), ratio(0.0, measure)) > settings.max_sequence_ratio
        return [(c, b, 0.0 if left_behind else a) for c, b, a in found]

    def compared(self, sample: Sample, rows: list[Row]) -> list[list[Entry]]:
        """The set of each token with the log-probs of student and teacher; empty without a teacher."""
        return [
            [Entry(row[v], row[v], taught[v]) for v in ids]
            for row, taught, ids in zip(rows, *self.lesson(sample, rows), strict=True)
        ]

    def lesson(self, sample: Sample, rows: list[Row]) -> tuple[list[Row], list[list[int]]]:
        """The chosen teacher's rows and the tokens that are compared, at each token of the reply."""
        settings, k = self.settings, self.settings.top_k
        hints = sorted({vote.hint for vote in sample.judgement.votes if vote.hint}, key=len)
        use_base = settings.teacher == "base"
        teachers = [self.rows(sample, hint, use_base=use_base) for hint in hints[: settings.max_hints]]
        if not teachers and sample.reward and settings.method == "hybrid":
            if settings.without_hint == "base":
                teachers = [self.rows(sample, use_base=True)]
            elif settings.without_hint == "earlier_hint" and sample.earlier_hint:
                teachers = [self.rows(sample, sample.earlier_hint, use_base=use_base)]
        if not teachers:
            return rows, [[] for _ in rows]
        own = [top(row, k) for row in rows]
        theirs = [[top(row, k) for row in teacher] for teacher in teachers]
        hint = chosen_hints(shared_tokens(own, theirs), settings.hint_selection)
        self.chosen += hint
        taught = [teachers[h][place] for place, h in enumerate(hint)]
        picked = [theirs[h][place] for place, h in enumerate(hint)]
        ids = {
            "student": own,
            "teacher": picked,
            "overlap": [[v for v in a if v in b] for a, b in zip(own, picked, strict=True)],
        }
        return taught, ids[settings.distilled_tokens]

    def logits_gradient(self, samples: Sequence[Sample], advantages: Sequence[float]) -> list[Row]:
        """Of the hybrid's loss with respect to every logit, in closed form."""
        found = []
        for sample, advantage in zip(samples, advantages, strict=True):
            rows = self.rows(sample)
            scale = len(rows) * len(samples) * (sample.turn.sampling.temperature or 1.0)
            sampled = self.sampled(sample, rows, advantage)
            taught, ids = self.lesson(sample, rows)
            for place, row in enumerate(rows):
                pull = dict.fromkeys(range(len(row)), 0.0)
                pull[sample.turn.response_ids[place]] += self._pull_of_sampled(*sampled[place])
                entries = [Entry(row[v], row[v], taught[place][v]) for v in ids[place]]
                for v, a in zip(ids[place], hybrid_advantages(entries, self.settings.max_gap), strict=True):
                    pull[v] += self.settings.hint_weight * a
                # -sum_v A_v (e_v - pi)
                whole = sum(pull.values())
                masses = torch.tensor(row, dtype=torch.float64).exp().tolist()
                found.append([(whole * masses[v] - pull[v]) / scale for v in range(len(row))])
        return found

    def _pull_of_sampled(self, current: float, behaviour: float, advantage: float) -> float:
        """A rho, or 0 where the clip or the truncation holds the token still."""
        rho = ratio(current, behaviour)
        still = rho > self.bounds.most or (
            rho > 1 + self.bounds.high if advantage > 0 else rho < 1 - self.bounds.low
        )
        return 0.0 if still else advantage * rho
