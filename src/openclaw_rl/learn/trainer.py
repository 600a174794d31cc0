"""One optimiser step: samples in, changed weights and metrics out.

Holds the weights that are trained (a LoRA adapter, or every weight), their optimiser, and the frozen base
that teaches. Student, teacher and reference go through the same forward pass as the sampler. Knows no
store and no files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn import objectives
from openclaw_rl.learn.batch import Packed, Scored, packed, student, teacher
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import token_log_probs

BETAS = (0.9, 0.98)


class NotFiniteError(RuntimeError):
    """The step would have put NaN or infinity into the weights; it was not taken."""


class Trainer:
    """The trainable policy. `network` is frozen when an adapter is trained.

    With full fine-tuning `network` is the float32 model that is trained and `base` a frozen copy of the
    model as loaded; otherwise `base` is `network` without the adapter.
    """

    def __init__(
        self,
        network: Network,
        template: ChatTemplate,
        settings: LearnSettings,
        base: Network | None = None,
        before_pass: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_pass` is called before each forward and backward pass, to share the machine."""
        self.network = network
        self._template = template
        self._settings = settings
        self._base = base or network
        self._before_pass = before_pass
        self.adapter: Adapter | None = None
        if not settings.full_fine_tuning:
            self.adapter = Adapter.fresh(
                network.adapted, settings.lora_rank, settings.lora_alpha, settings.seed
            )
        self.parameters = self._parameters()
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(),
            lr=settings.learning_rate,
            betas=BETAS,
            weight_decay=settings.weight_decay,
        )

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Take one optimiser step on a whole batch and return its metrics.

        Raises NotFiniteError, with the weights unchanged, when the loss or its gradient is not finite.
        """
        clock = _Clock()
        parts = [student(index, sample) for index, sample in enumerate(samples)]
        advantage, behaviour, metrics = self._advantages(samples, parts, clock)
        reference = self._reference(parts, clock) if self._settings.kl_weight > 0 else None
        self.optimiser.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        tokens = 0
        for group in packed(parts, self._settings.tokens_per_pass):
            count = len(group.targets())
            measured = self._accumulate(group, len(samples), advantage, behaviour, reference, clock)
            for name, value in measured.items():
                summed = name in ("loss", "kl_to_base")
                totals[name] = totals.get(name, 0.0) + (value if summed else value * count)
            tokens += count
        with clock.part("optimiser"):
            norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._settings.max_grad_norm)
            # Clamping hides NaN from the gradient, so the loss is looked at too.
            if not (torch.isfinite(norm) and math.isfinite(totals["loss"])):
                self.optimiser.zero_grad(set_to_none=True)
                raise NotFiniteError("the loss or its gradient is not finite; this step was not taken")
            self.optimiser.step()
        for name in ("mean_ratio", "clipped_share", "log_prob_gap"):
            totals[name] /= tokens
        return {
            **metrics,
            **totals,
            "grad_norm": norm.item(),
            "tokens": float(tokens),
            **{f"seconds_{name}": spent for name, spent in clock.spent.items()},
        }

    def log_probs(self, parts: Sequence[Scored], *, use_base: bool = False) -> dict[int, torch.Tensor]:
        """Log-probs of the response tokens, without gradients, for each part's index: float32 [tokens]."""
        network = self._base if use_base else self.network
        adapter = None if use_base else self.adapter
        found: dict[int, torch.Tensor] = {}
        with torch.inference_mode():
            for group in packed(parts, self._settings.tokens_per_pass):
                self._before_pass()
                scores = self._scores(group, network, adapter)
                start = 0
                for part in group.parts:
                    found[part.index] = scores[start : start + len(part.response_ids)]
                    start += len(part.response_ids)
        return found

    def _advantages(
        self, samples: Sequence[Sample], parts: Sequence[Scored], clock: _Clock
    ) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor], dict[str, float]]:
        """Each sample's per-token advantage and recorded log-probs, and what the batch looks like."""
        settings = self._settings
        reward_weight = 0.0 if settings.method == "opd" else settings.reward_weight
        hint_weight = 0.0 if settings.method == "binary" else settings.hint_weight
        lessons = self._lessons(samples) if hint_weight else []
        hinted = [lesson.index for lesson in lessons]
        with clock.part("teacher"):
            taught = self.log_probs(lessons, use_base=settings.teacher == "base")
        advantage: dict[int, torch.Tensor] = {}
        behaviour: dict[int, torch.Tensor] = {}
        for part in parts:
            sample = samples[part.index]
            recorded = torch.tensor(sample.turn.logprobs, device=self.network.device)
            lesson = taught.get(part.index, recorded)
            behaviour[part.index] = recorded
            advantage[part.index] = objectives.advantages(
                torch.full_like(recorded, sample.reward),
                lesson,
                recorded,
                torch.full_like(recorded, part.index in taught, dtype=torch.bool),
                reward_weight=reward_weight,
                hint_weight=hint_weight,
            )
        gaps = [taught[index] - behaviour[index] for index in hinted]
        metrics = {
            "samples": float(len(samples)),
            "mean_reward": sum(sample.reward for sample in samples) / len(samples),
            "hinted_share": len(hinted) / len(samples),
            "teacher_gap": torch.cat(gaps).mean().item() if gaps else 0.0,
            "mean_advantage": torch.cat(list(advantage.values())).mean().item(),
        }
        return advantage, behaviour, metrics

    def _lessons(self, samples: Sequence[Sample]) -> list[Scored]:
        """What the teacher reads of the samples with a hint. A hinted prompt that outgrows the context is
        left out, and its sample learns from its score alone: nothing is cut."""
        lessons = [
            teacher(index, sample, self._template) for index, sample in enumerate(samples) if sample.hint
        ]
        return [lesson for lesson in lessons if lesson.length <= self.network.context_length]

    def _reference(self, parts: Sequence[Scored], clock: _Clock) -> dict[int, torch.Tensor]:
        with clock.part("reference"):
            return self.log_probs(parts, use_base=True)

    def _accumulate(
        self,
        group: Packed,
        batch_size: int,
        advantage: dict[int, torch.Tensor],
        behaviour: dict[int, torch.Tensor],
        reference: dict[int, torch.Tensor] | None,
        clock: _Clock,
    ) -> dict[str, float]:
        """Forward and backward for one group; gradients add up."""
        settings = self._settings
        indices = [part.index for part in group.parts]
        samples = group.samples().to(self.network.device)
        recorded = torch.cat([behaviour[index] for index in indices])
        self._before_pass()
        with clock.part("forward"):
            current = self._scores(group, self.network, self.adapter)
            surrogate = objectives.clipped_surrogate(
                current,
                recorded,
                torch.cat([advantage[index] for index in indices]),
                samples,
                batch_size=batch_size,
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
            )
            loss = surrogate.loss
            measured = {
                "mean_ratio": surrogate.mean_ratio,
                "clipped_share": surrogate.clipped_share,
                "log_prob_gap": (current.detach() - recorded).abs().mean().item(),
            }
            if reference is not None:
                base = torch.cat([reference[index] for index in indices])
                kl = objectives.kl_to_reference(current, base, samples, batch_size=batch_size)
                loss = loss + settings.kl_weight * kl
                measured["kl_to_base"] = kl.item()
        self._before_pass()
        with clock.part("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return {**measured, "loss": loss.item()}

    def _scores(self, group: Packed, network: Network, adapter: Adapter | None) -> torch.Tensor:
        logits = network.packed_logits(group.sequences, group.keep(), adapter)
        device = network.device
        return token_log_probs(logits, group.targets().to(device), group.temperatures().to(device))

    def _parameters(self) -> dict[str, torch.Tensor]:
        """What is trained, by the names that a checkpoint uses."""
        if self.adapter is not None:
            return self.adapter.tensors()
        return dict(self.network.model.named_parameters())


class _Clock:
    """Adds up the seconds spent in the parts of a step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - started
