"""The loss of a batch, pass by pass: which terms a method adds up, and what each needs to know.

The sampled tokens are weighed by an advantage, from the turn's score, from a teacher or from both. hybrid
and opd_top_k add what `distil` learns from a teacher's likeliest tokens; the pull to the base and the
entropy bonus are added where they are switched on. Knows no optimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from openclaw_rl.config import LearnSettings, Method
from openclaw_rl.learn.batch import Packed
from openclaw_rl.learn.distil import TopKDistillation
from openclaw_rl.learn.meter import Meter
from openclaw_rl.learn.objectives import advantage, divergence, drift
from openclaw_rl.learn.objectives.imitation import imitation
from openclaw_rl.learn.objectives.surrogate import clipped_surrogate, sum_of_sample_means
from openclaw_rl.learn.predictions import Predictions
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.learn.teacher import Teacher
from openclaw_rl.model import Sample


@dataclass(frozen=True, slots=True)
class Terms:
    """What a method learns from: the score, which tokens its teacher is asked about, or accepted replies."""

    score: bool
    taught: Literal["none", "sampled", "likeliest"]
    imitates: bool = False


TERMS: dict[Method, Terms] = {
    "binary": Terms(score=True, taught="none"),
    "opd": Terms(score=False, taught="sampled"),
    "opd_top_k": Terms(score=False, taught="likeliest"),
    "combined": Terms(score=True, taught="sampled"),
    "hybrid": Terms(score=True, taught="likeliest"),
    "sft": Terms(score=False, taught="none", imitates=True),
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The sampled tokens of one pass; every tensor is [response tokens], on the model's device.

    Log-probs are float32: of the policy now, of the policy that sampled, and of the frozen base where the
    pull to it is switched on.
    """

    group: Packed
    sample: torch.Tensor
    current: torch.Tensor
    behaviour: torch.Tensor
    base: torch.Tensor | None


class BatchLoss:
    """The loss of one batch. Losses of its passes add up to the loss of the whole."""

    def __init__(
        self,
        samples: Sequence[Sample],
        advantages: Sequence[float],
        scorer: Scorer,
        teacher: Teacher,
        settings: LearnSettings,
        meter: Meter,
    ) -> None:
        """`advantages` holds one number for each sample: what its score came to."""
        self._samples = samples
        self._advantages = advantages
        self._scorer = scorer
        self._teacher = teacher
        self._settings = settings
        self._meter = meter
        self._terms = TERMS[settings.method]
        self._distillation = TopKDistillation(samples, teacher, settings, meter)

    def of(self, group: Packed, predictions: Predictions) -> torch.Tensor:
        """The loss of one pass, a scalar, from the policy's predictions of its response tokens."""
        token_ids = group.targets().to(predictions.hidden.device).unsqueeze(1)
        compared = None
        if self._terms.taught == "likeliest":
            compared = self._distillation.compared(group, predictions)
            token_ids = torch.cat([token_ids, compared.token_ids], dim=1)
        # Everything that needs a gradient is read at once: it costs a pass through the vocabulary.
        with self._meter.seconds("forward"):
            found = predictions.log_probs(token_ids)
        tokens = self._tokens(group, found[:, 0])
        loss = self._imitation(tokens) if self._terms.imitates else self._surrogate(tokens)
        if compared is not None:
            loss = loss + self._settings.hint_weight * self._distillation.loss(group, compared, found[:, 1:])
        if tokens.base is not None:
            loss = loss + self._pull_to_base(tokens, tokens.base)
        if self._settings.entropy_weight:
            loss = loss - self._settings.entropy_weight * self._entropy(tokens, predictions)
        return loss

    def _tokens(self, group: Packed, current: torch.Tensor) -> Tokens:
        recorded = [logprob for part in group.parts for logprob in self._samples[part.index].turn.logprobs]
        return Tokens(
            group,
            group.samples().to(current.device),
            current,
            torch.tensor(recorded, device=current.device),
            self._base_log_probs(group) if self._settings.kl_weight else None,
        )

    def _base_log_probs(self, group: Packed) -> torch.Tensor:
        with self._meter.seconds("reference"):
            found = self._scorer.log_probs(group.parts, use_base=True)
        return torch.cat([found[part.index] for part in group.parts])

    def _imitation(self, tokens: Tokens) -> torch.Tensor:
        """The cross-entropy of the replies that were judged good."""
        accepted = tokens.group.spread([self._samples[part.index].reward > 0 for part in tokens.group.parts])
        return imitation(
            tokens.current,
            accepted.to(tokens.current.device),
            tokens.sample,
            batch_size=len(self._samples),
        )

    def _surrogate(self, tokens: Tokens) -> torch.Tensor:
        """The clipped surrogate of the sampled tokens, without the samples that the policy has left."""
        settings, meter = self._settings, self._meter
        weighed = self._advantage(tokens)
        drifted = drift.drifted(
            tokens.current, tokens.behaviour, tokens.sample, max_ratio=settings.max_sequence_ratio
        )
        found = clipped_surrogate(
            tokens.current,
            tokens.behaviour,
            weighed.masked_fill(drifted, 0.0),
            tokens.sample,
            batch_size=len(self._samples),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            max_ratio=settings.max_ratio,
        )
        count = len(weighed)
        gap = (tokens.current.detach() - tokens.behaviour).abs()
        meter.mean("mean_ratio", found.mean_ratio, count)
        meter.mean("clipped_share", found.clipped_share, count)
        meter.mean("truncated_share", found.truncated_share, count)
        meter.mean("log_prob_gap", gap.mean().item(), count)
        meter.mean("mean_advantage", weighed.mean().item(), count)
        meter.add("drifted_samples", len(set(tokens.sample[drifted].tolist())))
        return found.loss

    def _advantage(self, tokens: Tokens) -> torch.Tensor:
        """Of each sampled token, from the score, the teacher's gap and the pull to the base: [tokens]."""
        settings, group, behaviour = self._settings, tokens.group, tokens.behaviour
        taught, has_hint = behaviour, torch.zeros_like(behaviour, dtype=torch.bool)
        if self._terms.taught == "sampled":
            taught, has_hint = self._taught(group, behaviour)
        found = advantage.combined(
            group.spread([float(self._advantages[part.index]) for part in group.parts]).to(behaviour.device),
            taught,
            behaviour,
            has_hint,
            reward_weight=settings.reward_weight if self._terms.score else 0.0,
            hint_weight=settings.hint_weight,
        )
        if tokens.base is not None and settings.kl_estimator == "k1":
            found = found - settings.kl_weight * divergence.kl_per_token(behaviour, tokens.base, "k1")
        return found

    def _taught(self, group: Packed, behaviour: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The teacher's log-prob of each sampled token, and where there was a teacher: both [tokens]."""
        samples = {part.index: self._samples[part.index] for part in group.parts}
        hints = {place: [sample.hint] for place, sample in samples.items() if sample.hint}
        asked = {
            part.index: torch.tensor(part.response_ids, device=behaviour.device).unsqueeze(1)
            for part in group.parts
        }
        with self._meter.seconds("teacher"):
            lessons = self._teacher.lessons(samples, hints, asked)
        taught, has_hint = behaviour.clone(), torch.zeros_like(behaviour, dtype=torch.bool)
        for place, (lesson,) in lessons.items():
            own = (group.samples() == place).to(behaviour.device)
            taught[own], has_hint[own] = lesson.asked.squeeze(1), True
        self._meter.add("hinted_samples", len(lessons))
        if lessons:
            gaps = (taught - behaviour)[has_hint]
            self._meter.mean("teacher_gap", gaps.mean().item(), len(gaps))
        return taught, has_hint

    def _pull_to_base(self, tokens: Tokens, base: torch.Tensor) -> torch.Tensor:
        """kl_weight times the KL to the base; k1 is in the advantage instead and adds 0 here."""
        settings, size = self._settings, len(self._samples)
        estimate = divergence.kl_loss(
            tokens.current.detach(), base, tokens.sample, batch_size=size, estimator="k3"
        )
        self._meter.add("kl_to_base", estimate.item())
        if settings.kl_estimator == "k1":
            return torch.zeros_like(estimate)
        return settings.kl_weight * divergence.kl_loss(
            tokens.current, base, tokens.sample, batch_size=size, estimator=settings.kl_estimator
        )

    def _entropy(self, tokens: Tokens, predictions: Predictions) -> torch.Tensor:
        """Of what was sampled from, at each turn's own temperature: averaged like the surrogate."""
        found = sum_of_sample_means(predictions.entropy(), tokens.sample) / len(self._samples)
        self._meter.add("entropy", found.item())
        return found
