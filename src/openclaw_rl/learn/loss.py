"""The loss of a batch, pass by pass: which objectives a method joins, and what each needs to know.

A method takes rewards, a teacher or both. The teacher is asked either about the sampled tokens alone
(opd, combined) or about the likeliest tokens at each position (opd_top_k, hybrid). Knows no optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from openclaw_rl.config import LearnSettings
from openclaw_rl.judge.verdict import hints_of
from openclaw_rl.learn.batch import Packed
from openclaw_rl.learn.meter import Meter
from openclaw_rl.learn.objectives import advantage, distillation, divergence, drift, hint_selection
from openclaw_rl.learn.objectives.surrogate import clipped_surrogate, sum_of_sample_means
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.learn.teacher import Lesson, Teacher
from openclaw_rl.model import Sample
from openclaw_rl.policy.embedded.sampler import chosen_log_probs


@dataclass(frozen=True, slots=True)
class Parts:
    """What a method is made of."""

    rewards: bool
    teacher: Literal["none", "sampled tokens", "reverse KL", "top-k surrogate"]


PARTS: dict[str, Parts] = {
    "binary": Parts(rewards=True, teacher="none"),
    "opd": Parts(rewards=False, teacher="sampled tokens"),
    "opd_top_k": Parts(rewards=False, teacher="reverse KL"),
    "combined": Parts(rewards=True, teacher="sampled tokens"),
    "hybrid": Parts(rewards=True, teacher="top-k surrogate"),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """What one sample is compared in, all [tokens, k]: which tokens, their teacher, which of them count."""

    token_ids: torch.Tensor
    teacher: torch.Tensor
    kept: torch.Tensor


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
        """`advantages` holds one number for each sample."""
        self._samples = samples
        self._advantages = advantages
        self._scorer = scorer
        self._teacher = teacher
        self._settings = settings
        self._meter = meter
        self._parts = PARTS[settings.method]

    def of(self, group: Packed, logits: torch.Tensor) -> torch.Tensor:
        """The loss of one pass, a scalar, from its logits [response tokens, vocabulary]."""
        settings, meter = self._settings, self._meter
        current = self._scorer.sampled(group, logits)
        behaviour = torch.tensor(
            [logprob for part in group.parts for logprob in self._samples[part.index].turn.logprobs],
            device=logits.device,
        )
        owner = group.samples().to(logits.device)
        reference = self._reference(group)
        weighed = self._token_advantage(group, behaviour, reference)
        left_behind = drift.drifted(current, behaviour, owner, max_ratio=settings.max_sequence_ratio)
        surrogate = clipped_surrogate(
            current,
            behaviour,
            torch.where(left_behind, torch.zeros_like(weighed), weighed),
            owner,
            batch_size=len(self._samples),
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            max_ratio=settings.max_ratio,
        )
        loss = surrogate.loss
        count = len(current)
        meter.mean("mean_ratio", surrogate.mean_ratio, count)
        meter.mean("clipped_share", surrogate.clipped_share, count)
        meter.mean("truncated_share", surrogate.truncated_share, count)
        meter.mean("log_prob_gap", (current.detach() - behaviour).abs().mean().item(), count)
        meter.mean("mean_advantage", weighed.mean().item(), count)
        meter.add("drifted_samples", len(set(owner[left_behind].tolist())))
        if self._parts.teacher in ("reverse KL", "top-k surrogate"):
            loss = loss + settings.hint_weight * self._distillation(group, logits)
        return loss + self._penalties(owner, logits, current, reference)

    def _token_advantage(
        self, group: Packed, behaviour: torch.Tensor, reference: torch.Tensor | None
    ) -> torch.Tensor:
        """The advantage of each sampled token, from rewards, the teacher's gap and the pull to the base."""
        settings = self._settings
        taught, has_hint = behaviour, torch.zeros_like(behaviour, dtype=torch.bool)
        if self._parts.teacher == "sampled tokens":
            taught, has_hint = self._sampled_lessons(group, behaviour)
        found = advantage.combined(
            group.spread([float(self._advantages[part.index]) for part in group.parts]).to(behaviour.device),
            taught,
            behaviour,
            has_hint,
            reward_weight=settings.reward_weight if self._parts.rewards else 0.0,
            hint_weight=settings.hint_weight,
        )
        if reference is not None and settings.kl_estimator == "k1":
            found = found - settings.kl_weight * divergence.kl_per_token(behaviour, reference, "k1")
        return found

    def _sampled_lessons(self, group: Packed, behaviour: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The teacher's log-prob of each sampled token, and where there was a teacher: both [tokens]."""
        asked = {
            part.index: torch.tensor(part.response_ids, device=behaviour.device).unsqueeze(1)
            for part in group.parts
        }
        with self._meter.seconds("teacher"):
            lessons = self._lessons(group, asked, most_hints=1, top_k=1)
        taught, has_hint = [], []
        for part, own in zip(group.parts, torch.split(behaviour, group.lengths), strict=True):
            of_sample = lessons.get(part.index)
            taught.append(of_sample[0].asked.squeeze(1) if of_sample else own)
            has_hint.append(torch.full_like(own, bool(of_sample), dtype=torch.bool))
            if of_sample:
                self._meter.mean("teacher_gap", (taught[-1] - own).mean().item(), len(own))
        self._meter.add("hinted_samples", sum(bool(found) for found in lessons.values()))
        return torch.cat(taught), torch.cat(has_hint)

    def _distillation(self, group: Packed, logits: torch.Tensor) -> torch.Tensor:
        """The loss of the teacher's distributions, over the samples that have a teacher."""
        settings = self._settings
        own_ids = logits.detach().topk(settings.top_k, dim=-1).indices
        asked = dict(
            zip([part.index for part in group.parts], torch.split(own_ids, group.lengths), strict=True)
        )
        with self._meter.seconds("teacher"):
            lessons = self._lessons(group, asked, settings.max_hints, settings.top_k)
            self._meter.add("hinted_samples", len(lessons))
            if settings.anchor_to_base and self._parts.rewards:
                lessons |= self._anchors(group, asked, lessons)
        chosen: list[tuple[Compared, torch.Tensor, torch.Tensor]] = []
        temperatures = torch.split(group.temperatures().to(logits.device), group.lengths)
        for part, part_logits, temperature in zip(
            group.parts, torch.split(logits, group.lengths), temperatures, strict=True
        ):
            if of_sample := lessons.get(part.index):
                compared = self._compare(asked[part.index], of_sample)
                current = chosen_log_probs(part_logits, compared.token_ids, temperature)
                owner = torch.full((len(current),), part.index, device=logits.device)
                chosen.append((compared, current, owner))
        if not chosen:
            return logits.new_zeros((), dtype=torch.float32)
        return self._distilled(
            torch.cat([current for _, current, _ in chosen]),
            torch.cat([compared.teacher for compared, _, _ in chosen]),
            torch.cat([compared.kept for compared, _, _ in chosen]),
            torch.cat([owner for _, _, owner in chosen]),
        )

    def _distilled(
        self, current: torch.Tensor, taught: torch.Tensor, kept: torch.Tensor, owner: torch.Tensor
    ) -> torch.Tensor:
        settings, count = self._settings, len(current)
        gap = (taught - current.detach()).masked_fill(~kept, 0.0)
        self._meter.mean("teacher_gap", gap.sum().item() / max(1, int(kept.sum())), count)
        if self._parts.teacher == "reverse KL":
            return distillation.reverse_kl_with_tail(
                current, taught, kept, owner, batch_size=len(self._samples)
            )
        # One step is taken for each batch, so the old policy is the current one, held fixed.
        surrogate = distillation.top_k_surrogate(
            current,
            current.detach(),
            taught,
            kept,
            owner,
            batch_size=len(self._samples),
            max_gap=settings.max_gap,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
        )
        self._meter.mean("capped_gap_share", (gap.abs() > settings.max_gap).float().mean().item(), count)
        return surrogate.loss

    def _compare(self, own_ids: torch.Tensor, lessons: Sequence[Lesson]) -> Compared:
        """Choose each token's hint and the tokens to compare; lessons are of the shortest hint first."""
        settings = self._settings
        teacher_ids = torch.stack([lesson.top_ids for lesson in lessons])
        hint = hint_selection.select(hint_selection.overlap(own_ids, teacher_ids), settings.hint_selection)
        at = torch.arange(len(own_ids), device=own_ids.device)
        if settings.distilled_tokens == "teacher":
            tops = torch.stack([lesson.top for lesson in lessons])[hint, at]
            return Compared(teacher_ids[hint, at], tops, torch.ones_like(tops, dtype=torch.bool))
        asked = torch.stack([lesson.asked for lesson in lessons])[hint, at]
        kept = torch.ones_like(asked, dtype=torch.bool)
        if settings.distilled_tokens == "overlap":
            kept = (own_ids.unsqueeze(-1) == teacher_ids[hint, at].unsqueeze(-2)).any(-1)
        return Compared(own_ids, asked, kept)

    def _lessons(
        self, group: Packed, asked: Mapping[int, torch.Tensor], most_hints: int, top_k: int
    ) -> dict[int, list[Lesson]]:
        samples = {part.index: self._samples[part.index] for part in group.parts}
        hints = {
            index: [sample.hint] if most_hints == 1 else hints_of(sample.judgement.votes)[:most_hints]
            for index, sample in samples.items()
            if sample.hint
        }
        return self._teacher.lessons(samples, hints, asked, top_k)

    def _anchors(
        self, group: Packed, asked: Mapping[int, torch.Tensor], lessons: Mapping[int, list[Lesson]]
    ) -> dict[int, list[Lesson]]:
        untaught = {
            part.index: self._samples[part.index] for part in group.parts if part.index not in lessons
        }
        return self._teacher.anchors(untaught, asked, self._settings.top_k)

    def _reference(self, group: Packed) -> torch.Tensor | None:
        """The frozen base's log-probs of the sampled tokens [tokens], where something needs them."""
        if not self._settings.kl_weight:
            return None
        with self._meter.seconds("reference"):
            found = self._scorer.log_probs(group.parts, use_base=True)
        return torch.cat([found[part.index] for part in group.parts])

    def _penalties(
        self,
        owner: torch.Tensor,
        logits: torch.Tensor,
        current: torch.Tensor,
        reference: torch.Tensor | None,
    ) -> torch.Tensor:
        settings, size = self._settings, len(self._samples)
        loss = current.new_zeros(())
        if reference is not None:
            self._meter.add(
                "kl_to_base",
                divergence.kl_loss(
                    current.detach(), reference, owner, batch_size=size, estimator="k3"
                ).item(),
            )
            if settings.kl_estimator != "k1":
                kl = divergence.kl_loss(
                    current, reference, owner, batch_size=size, estimator=settings.kl_estimator
                )
                loss = loss + settings.kl_weight * kl
        if settings.entropy_weight:
            mean = sum_of_sample_means(divergence.entropy(logits), owner) / size
            self._meter.add("entropy", mean.item())
            loss = loss - settings.entropy_weight * mean
        return loss
