"""What the teacher, the model that saw the hint, says of a reply that was given without it.

The teacher is the current policy or the frozen base; it reads the user's request with the hint inside,
and then the reply's own tokens. Knows no reward and no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.learn.batch import Scored, student, teacher
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Lesson:
    """One hint's teacher on one reply, at each of its tokens.

    `asked` float32 [tokens, asked] are the log-probs of the tokens that were asked about; `top_ids` int64
    [tokens, k] and `top` float32 [tokens, k] are the teacher's own likeliest tokens.
    """

    asked: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor


@dataclass(frozen=True, slots=True)
class Teacher:
    """Reads hints into prompts and scores replies. `use_base` teaches with the frozen base."""

    scorer: Scorer
    template: ChatTemplate
    use_base: bool

    def lessons(
        self,
        samples: Mapping[int, Sample],
        hints: Mapping[int, Sequence[str]],
        asked: Mapping[int, torch.Tensor],
        top_k: int = 1,
    ) -> dict[int, list[Lesson]]:
        """For each sample's place in the batch, one lesson for each of its hints, in their order.

        `asked` holds int64 [tokens, asked] for each of these samples. A hinted prompt that outgrows the
        context is left out, and its sample has a lesson less: nothing is cut.
        """
        parts = [
            part
            for index, of_sample in hints.items()
            for hint in of_sample
            if (part := teacher(index, samples[index], hint, self.template)).length
            <= self.scorer.context_length
        ]
        return self._ask(parts, asked, top_k, use_base=self.use_base)

    def anchors(
        self, samples: Mapping[int, Sample], asked: Mapping[int, torch.Tensor], top_k: int = 1
    ) -> dict[int, list[Lesson]]:
        """What the frozen base says of each reply without any hint."""
        parts = [student(index, sample) for index, sample in samples.items()]
        return self._ask(parts, asked, top_k, use_base=True)

    @torch.no_grad()
    def _ask(
        self, parts: Sequence[Scored], asked: Mapping[int, torch.Tensor], top_k: int, *, use_base: bool
    ) -> dict[int, list[Lesson]]:
        found: dict[int, list[Lesson]] = {}
        for part, predictions in self.scorer.each(parts, use_base=use_base):
            of_part = asked[part.index]
            top_ids = predictions.likeliest(top_k)
            both = predictions.log_probs(torch.cat([of_part, top_ids], dim=1))
            lesson = Lesson(both[:, : of_part.shape[1]], top_ids, both[:, of_part.shape[1] :])
            found.setdefault(part.index, []).append(lesson)
        return found
