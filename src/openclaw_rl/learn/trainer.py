"""One optimiser step: samples in, changed weights and metrics out.

Holds the weights that are trained (a LoRA adapter, or every weight), their optimiser, and the frozen base.
Student, teacher and reference go through the same forward pass as the sampler. Knows no store, no files
and no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn.batch import Scored, packed, student
from openclaw_rl.learn.loss import BatchLoss
from openclaw_rl.learn.meter import Meter
from openclaw_rl.learn.objectives.advantage import next_baseline
from openclaw_rl.learn.rewards import mean_verdict, turn_advantages
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.learn.teacher import Teacher
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network

BETAS = (0.9, 0.98)
LEAST_SHARE = 0.1
"""Of the first learning rate, that a falling one keeps: what a person wants goes on changing."""


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
        self._settings = settings
        self._before_pass = before_pass
        self.adapter: Adapter | None = None
        if not settings.full_fine_tuning:
            self.adapter = Adapter.fresh(
                network.adapted, settings.lora_rank, settings.lora_alpha, settings.seed
            )
        self._scorer = Scorer(network, self.adapter, base or network, settings.tokens_per_pass, before_pass)
        self._teacher = Teacher(self._scorer, template, settings.teacher == "base")
        self.baseline = 0.0
        """The running mean of past rewards; stays 0 unless a baseline is switched on."""
        self.parameters = self._parameters()
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(),
            lr=settings.learning_rate,
            betas=BETAS,
            weight_decay=settings.weight_decay,
        )

    def step(self, samples: Sequence[Sample], updates_before: int = 0) -> dict[str, float]:
        """Take one optimiser step on a whole batch and return its metrics.

        `updates_before` counts the updates that made the weights it starts from; the rate falls with it.

        Raises NotFiniteError, with the weights unchanged, when the loss or its gradient is not finite.
        """
        meter = Meter()
        loss = BatchLoss(
            samples,
            turn_advantages(samples, self.baseline),
            self._scorer,
            self._teacher,
            self._settings,
            meter,
        )
        parts = [student(index, sample) for index, sample in enumerate(samples)]
        self.optimiser.zero_grad(set_to_none=True)
        total = 0.0
        for group in packed(parts, self._settings.tokens_per_pass):
            with meter.seconds("forward"):
                predictions = self._scorer.predictions(group)
            of_group = loss.of(group, predictions)
            self._before_pass()
            with meter.seconds("backward"):
                torch.autograd.backward(of_group)
            total += of_group.item()
        with meter.seconds("optimiser"):
            norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self._settings.max_grad_norm)
            # Clamping hides NaN from the gradient, so the loss is looked at too.
            if not (torch.isfinite(norm) and math.isfinite(total)):
                self.optimiser.zero_grad(set_to_none=True)
                raise NotFiniteError("the loss or its gradient is not finite; this step was not taken")
            for parameters in self.optimiser.param_groups:
                parameters["lr"] = self._learning_rate(updates_before)
            self.optimiser.step()
        verdict = mean_verdict(samples)
        if self._settings.baseline_decay and verdict is not None:
            self.baseline = next_baseline(self.baseline, verdict, self._settings.baseline_decay)
        return {
            **meter.read(),
            "samples": float(len(samples)),
            "tokens": float(sum(len(part.response_ids) for part in parts)),
            "mean_reward": sum(sample.reward for sample in samples) / len(samples),
            "loss": total,
            "grad_norm": norm.item(),
            "learning_rate": self._learning_rate(updates_before),
        }

    def log_probs(self, parts: Sequence[Scored], *, use_base: bool = False) -> dict[int, torch.Tensor]:
        """Log-probs of the response tokens, without gradients, for each part's index: float32 [tokens]."""
        return self._scorer.log_probs(parts, use_base=use_base)

    def _learning_rate(self, updates_before: int) -> float:
        settings = self._settings
        if not settings.decay_updates:
            return settings.learning_rate
        return settings.learning_rate * max(LEAST_SHARE, 1 / (1 + updates_before / settings.decay_updates))

    def _parameters(self) -> dict[str, torch.Tensor]:
        """What is trained, by the names that a checkpoint uses."""
        if self.adapter is not None:
            return self.adapter.tensors()
        return dict(self.network.model.named_parameters())
