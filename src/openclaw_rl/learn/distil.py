"""Learning from a teacher's likeliest tokens: which hint teaches, which tokens are compared, and the loss.

The policy's own likeliest tokens are known once its forward pass is done; each hint's teacher is asked
about them and for its own. Knows the two distillation objectives, no reward and no optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn.batch import Packed
from openclaw_rl.learn.meter import Meter
from openclaw_rl.learn.objectives import distillation, hint_selection
from openclaw_rl.learn.predictions import Predictions
from openclaw_rl.learn.teacher import Lesson, Teacher
from openclaw_rl.model import Sample


@dataclass(frozen=True, slots=True)
class Compared:
    """What replies are compared in, all [tokens, k].

    `token_ids` int64 are the tokens, `teacher` float32 the teacher's log-probs of them, and `kept` bool
    says which of them count: none where a reply has no teacher.
    """

    token_ids: torch.Tensor
    teacher: torch.Tensor
    kept: torch.Tensor


@dataclass(frozen=True, slots=True)
class TopKDistillation:
    """The distillation half of hybrid and the whole of opd_top_k, for one batch."""

    samples: Sequence[Sample]
    teacher: Teacher
    settings: LearnSettings
    meter: Meter

    def compared(self, group: Packed, predictions: Predictions) -> Compared:
        """What the policy's `predictions` of the group are to be compared in, a row for each of them."""
        with self.meter.seconds("forward"):
            own_ids = torch.split(predictions.likeliest(self.settings.top_k), group.lengths)
        asked = {part.index: ids for part, ids in zip(group.parts, own_ids, strict=True)}
        with self.meter.seconds("teacher"):
            lessons = self._lessons(asked)
        of_parts = [
            self._compare(ids, lessons[place]) if place in lessons else _nothing(ids)
            for place, ids in asked.items()
        ]
        return Compared(
            torch.cat([one.token_ids for one in of_parts]),
            torch.cat([one.teacher for one in of_parts]),
            torch.cat([one.kept for one in of_parts]),
        )

    def _lessons(self, asked: Mapping[int, torch.Tensor]) -> dict[int, list[Lesson]]:
        """The lessons of each sample that has any: of its hints, or of what it is pulled to without one."""
        settings = self.settings
        samples = {place: self.samples[place] for place in asked}
        hints = {place: sample.hints[: settings.max_hints] for place, sample in samples.items()}
        own = [place for place, of_sample in hints.items() if of_sample]
        pulled = {place: sample for place, sample in samples.items() if sample.reward and place not in own}
        if settings.method != "hybrid" or settings.without_hint == "nothing":
            pulled = {}
        if settings.without_hint == "earlier_hint":
            hints |= {place: [sample.earlier_hint] for place, sample in pulled.items() if sample.earlier_hint}
        found = self.teacher.lessons(samples, hints, asked, settings.top_k)
        self.meter.add("hinted_samples", sum(place in found for place in own))
        if settings.without_hint == "base":
            found |= self.teacher.anchors(pulled, asked, settings.top_k)
        return found

    def _compare(self, own_ids: torch.Tensor, lessons: Sequence[Lesson]) -> Compared:
        """Choose each token's hint and the tokens to compare; lessons are of the shortest hint first."""
        teacher_ids = torch.stack([lesson.top_ids for lesson in lessons])
        shared = hint_selection.overlap(own_ids, teacher_ids)
        hint = hint_selection.select(shared, self.settings.hint_selection)
        at = torch.arange(len(own_ids), device=own_ids.device)
        if self.settings.distilled_tokens == "teacher":
            tops = torch.stack([lesson.top for lesson in lessons])[hint, at]
            return Compared(teacher_ids[hint, at], tops, torch.ones_like(tops, dtype=torch.bool))
        asked = torch.stack([lesson.asked for lesson in lessons])[hint, at]
        kept = torch.ones_like(asked, dtype=torch.bool)
        if self.settings.distilled_tokens == "overlap":
            kept = (own_ids.unsqueeze(-1) == teacher_ids[hint, at].unsqueeze(-2)).any(-1)
        return Compared(own_ids, asked, kept)

    def loss(self, group: Packed, compared: Compared, current: torch.Tensor) -> torch.Tensor:
        """Of one pass, a scalar, divided by the size of the whole batch.

        `current` float32 [response tokens, k] are the policy's log-probs of the tokens compared.
        """
        settings, size = self.settings, len(self.samples)
        taught, kept, sample = compared.teacher, compared.kept, group.samples().to(current.device)
        gaps = (taught - current.detach())[kept]
        self.meter.mean("teacher_gap", gaps.mean().item() if len(gaps) else 0.0, len(gaps))
        if settings.method == "opd_top_k":
            return distillation.reverse_kl_with_tail(current, taught, kept, sample, batch_size=size)
        capped = (gaps.abs() > settings.max_gap).float()
        self.meter.mean("capped_gap_share", capped.mean().item() if len(gaps) else 0.0, len(gaps))
        return distillation.top_k_surrogate(
            current,
            # One step is taken for each batch, so the old policy is the current one, held fixed.
            current.detach(),
            taught,
            kept,
            sample,
            batch_size=size,
            max_gap=settings.max_gap,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
        )


def _nothing(token_ids: torch.Tensor) -> Compared:
    """Of a reply without a teacher."""
    return Compared(
        token_ids,
        torch.zeros_like(token_ids, dtype=torch.float32),
        torch.zeros_like(token_ids, dtype=torch.bool),
    )
