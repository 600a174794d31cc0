"""The loss of a batch on a tiny real model, against the same computed step by step in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from judged_loss import Reference
from judged_samples import HINT, a_sample, a_trainer, same, weights_of
from learnable_model import MODEL, sample_turn

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn import checkpoint
from openclaw_rl.learn.batch import Packed, student
from openclaw_rl.learn.loss import BatchLoss
from openclaw_rl.learn.meter import Meter
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.learn.teacher import Teacher
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network

HINTS = ("Name a city.", "Please answer in French, and be brief.", "Say first what you are not sure of.")
METHODS = ("binary", "opd", "opd_top_k", "combined", "hybrid")


class Scene:
    """A policy some steps away from its base, and judged turns that it sampled on its way."""

    def __init__(self, network: Network, template: ChatTemplate) -> None:
        self.network, self.template = network, template
        older, self.adapter = (Adapter.fresh(network.adapted, 4, 8, 0) for _ in range(2))
        torch.manual_seed(3)
        for before, after in zip(older.tensors().values(), self.adapter.tensors().values(), strict=True):
            way = torch.randn_like(before) * 0.05
            before.add_(way / 2)
            after.add_(way)
        texts = ["Hi", "What is the capital of France?", "Count to three.", "Why?", "Tell me more"]
        turns = [
            sample_turn(
                network,
                template,
                text,
                adapter=older,
                seed=place,
                max_tokens=3 + 3 * place,
                temperature=temperature,
            )
            for place, (text, temperature) in enumerate(zip(texts, (1.0, 0.7, 1.0, 0.0, 0.8), strict=True))
        ]
        self.samples = [
            replace(a_sample(turns[0], 1), earlier_hint=HINT),
            a_sample(turns[1], -1, *HINTS),
            a_sample(turns[2], None, HINTS[1], HINTS[2]),
            a_sample(turns[3], 1, HINTS[0]),
            a_sample(turns[4], -1, *reversed(HINTS)),
        ]
        self.advantages = [1.0, -1.0, 0.0, 0.5, -1.5]

    def loss(self, settings: LearnSettings, meter: Meter | None = None) -> BatchLoss:
        scorer = self.scorer()
        return BatchLoss(
            self.samples,
            self.advantages,
            scorer,
            Teacher(scorer, self.template, settings.teacher == "base"),
            settings,
            meter or Meter(),
        )

    def scorer(self) -> Scorer:
        return Scorer(self.network, self.adapter, self.network, 4096, lambda: None)

    def group(self, *places: int) -> Packed:
        wanted = places or range(len(self.samples))
        return Packed(tuple(student(place, self.samples[place]) for place in wanted))

    def found(self, settings: LearnSettings, *places: int) -> tuple[float, torch.Tensor, dict[str, float]]:
        """The loss of one pass, its gradient with respect to the logits, and the metrics."""
        meter, group = Meter(), self.group(*places)
        predictions = self.scorer().predictions(group)
        logits = predictions.project(predictions.hidden).detach().requires_grad_()
        of_logits = replace(predictions, hidden=logits, project=lambda logits: logits, head=None)
        loss = self.loss(settings, meter).of(group, of_logits)
        loss.backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        return loss.item(), logits.grad, meter.read()

    def reference(self, settings: LearnSettings) -> Reference:
        return Reference(self.network, self.adapter, self.template, settings)


@pytest.fixture(scope="module")
def shared(network: Network, template: ChatTemplate) -> Scene:
    return Scene(network, template)


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """The scene of all tests; a test that changes samples has them put back."""
    samples, advantages = list(shared.samples), list(shared.advantages)
    yield shared
    shared.samples, shared.advantages = samples, advantages


def learn_settings(method: str = "hybrid", **changes: Any) -> LearnSettings:
    return LearnSettings(**{"method": method, "reward_weight": 0.5, "hint_weight": 2.0, **changes})


def close(value: float) -> Any:
    # float32 passes over packed samples against float64 over each alone.
    return pytest.approx(value, rel=2e-4, abs=2e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("teacher", ["base", "current"])
def test_every_methods_loss_is_the_formula(scene: Scene, method: str, teacher: str) -> None:
    settings = learn_settings(method, teacher=teacher)
    expected = scene.reference(settings).of(scene.samples, scene.advantages)
    assert abs(expected) > 0.01
    assert scene.found(settings)[0] == close(expected)


@pytest.mark.parametrize("method", ["hybrid", "opd_top_k"])
@pytest.mark.parametrize("distilled", ["student", "teacher", "overlap"])
@pytest.mark.parametrize("rule", ["sequence_optimal", "token_optimal", "shortest"])
def test_whatever_tokens_are_compared_and_whichever_hint_teaches_the_loss_is_the_formula(
    scene: Scene, method: str, distilled: str, rule: str
) -> None:
    settings = learn_settings(method, distilled_tokens=distilled, hint_selection=rule, top_k=3)
    reference = scene.reference(settings)
    assert scene.found(settings)[0] == close(reference.of(scene.samples, scene.advantages))
    # The samples are such that the rules differ.
    assert (set(reference.chosen) == {0}) is (rule == "shortest")


@pytest.mark.parametrize(
    "changes",
    [
        {"top_k": 1},
        {"top_k": 20, "max_gap": 0.05},
        {"top_k": 258, "max_gap": 1e6},
        {"max_hints": 2, "hint_selection": "token_optimal"},
        {"max_hints": 1},
        {"clip_low": 0.01, "clip_high": 0.01, "max_ratio": 1.05},
        {"without_hint": "base"},
        {"without_hint": "earlier_hint"},
        {"distilled_tokens": "overlap", "top_k": 1},
    ],
    ids=str,
)
def test_the_hybrids_loss_follows_its_settings(scene: Scene, changes: dict[str, Any]) -> None:
    settings = learn_settings(**changes)
    expected = scene.reference(settings).of(scene.samples, scene.advantages)
    assert scene.found(settings)[0] == close(expected)


@pytest.mark.parametrize("distilled", ["student", "teacher", "overlap"])
def test_the_hybrids_gradient_is_minus_the_advantages_times_their_directions(
    scene: Scene, distilled: str
) -> None:
    settings = learn_settings(distilled_tokens=distilled, clip_high=0.02, clip_low=0.02)
    expected = scene.reference(settings).logits_gradient(scene.samples, scene.advantages)
    torch.testing.assert_close(scene.found(settings)[1], torch.tensor(expected), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_losses_of_passes_add_up(scene: Scene, method: str) -> None:
    settings = learn_settings(method, kl_weight=0.1, entropy_weight=0.1, without_hint="base")
    passes = [scene.found(settings, *places) for places in ((0, 3), (1,), (4, 2))]
    assert sum(loss for loss, _, _ in passes) == close(scene.found(settings)[0])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("method", ["binary", "hybrid"])
def test_the_pull_to_the_base_is_the_estimators(scene: Scene, method: str, estimator: str) -> None:
    settings = learn_settings(method, kl_weight=3.0, kl_estimator=estimator)
    loss, _, metrics = scene.found(settings)
    assert loss == close(scene.reference(settings).of(scene.samples, scene.advantages))
    without = learn_settings(method)
    assert abs(loss - scene.found(without)[0]) > 1e-4
    # Whatever is taken for the loss, the metric is the estimate that is never negative.
    assert metrics["kl_to_base"] == scene.found(learn_settings(method, kl_weight=1e-9))[2]["kl_to_base"] > 0


def test_the_entropy_bonus_is_of_the_distribution_that_was_sampled_from(scene: Scene) -> None:
    settings = learn_settings("binary", reward_weight=0.0, entropy_weight=0.5)
    loss, _, metrics = scene.found(settings)
    assert loss == close(scene.reference(settings).of(scene.samples, scene.advantages))
    assert metrics["entropy"] == pytest.approx(-2 * loss)


def test_a_drifted_sample_learns_nothing_from_its_score_and_is_counted(scene: Scene) -> None:
    settings = learn_settings("binary", max_sequence_ratio=1.9)
    _, before, metrics = scene.found(settings, 3)
    assert metrics["drifted_samples"] == 0
    assert before.any()
    for shift in (-1.0, 1.0):
        turn = scene.samples[3].turn
        moved = replace(turn, logprobs=tuple(logprob + shift for logprob in turn.logprobs))
        scene.samples[3] = replace(scene.samples[3], turn=moved)
        _, gradient, metrics = scene.found(settings)
        assert metrics["drifted_samples"] == 1
        drifted = scene.group().samples() == 3
        assert not gradient[drifted].any()
        assert gradient[scene.group().samples() == 1].any()
        # What the teacher says is compared with the policy as it is, so it still counts.
        hybrid = learn_settings(max_sequence_ratio=1.9)
        assert scene.found(hybrid)[0] == close(scene.reference(hybrid).of(scene.samples, scene.advantages))
        assert scene.found(hybrid)[1][drifted].any()
        scene.samples[3] = replace(scene.samples[3], turn=turn)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_without_hints_learns_from_its_scores_alone(scene: Scene, method: str) -> None:
    scene.samples = [a_sample(sample.turn, sample.judgement.score) for sample in scene.samples]
    settings = learn_settings(method)
    loss, gradient, _ = scene.found(settings)
    if method in ("opd", "opd_top_k"):
        assert loss == 0
        assert not gradient.any()
    else:
        assert loss == close(scene.found(learn_settings("binary"))[0])
        assert gradient.any()


@pytest.mark.parametrize("method", ["opd", "opd_top_k", "combined", "hybrid"])
def test_a_hint_that_came_without_votes_teaches_like_any_other(scene: Scene, method: str) -> None:
    with_votes = scene.found(learn_settings(method), 3)
    judgement = replace(scene.samples[3].judgement, votes=())
    scene.samples[3] = replace(scene.samples[3], judgement=judgement)
    without = scene.found(learn_settings(method), 3)
    assert without[0] == with_votes[0]
    assert without[2]["hinted_samples"] == 1


@pytest.mark.parametrize("method", ["opd", "opd_top_k", "combined", "hybrid"])
def test_hinted_samples_and_the_gap_to_their_teachers_are_counted(scene: Scene, method: str) -> None:
    metrics = scene.found(learn_settings(method))[2]
    assert metrics["hinted_samples"] == 4
    assert metrics["teacher_gap"] != 0


def test_sft_learns_from_the_replies_that_were_accepted_and_from_no_other(scene: Scene) -> None:
    loss, gradient, _ = scene.found(learn_settings("sft"))
    accepted = [place for place, sample in enumerate(scene.samples) if sample.reward > 0]
    assert 0 < len(accepted) < len(scene.samples)
    reference = scene.reference(learn_settings("sft"))
    expected = 0.0
    for place in accepted:
        sample = scene.samples[place]
        rows = reference.rows(sample)
        each = [row[token] for row, token in zip(rows, sample.turn.response_ids, strict=True)]
        expected -= sum(each) / len(each)
    assert loss == close(expected / len(scene.samples))
    of_sample = gradient.abs().sum(-1).split(scene.group().lengths)
    assert [place for place, one in enumerate(of_sample) if one.any()] == accepted


def test_the_share_of_capped_gaps_is_of_the_tokens_that_are_compared(scene: Scene) -> None:
    few = learn_settings(distilled_tokens="overlap", max_gap=1e-9)
    assert scene.found(few)[2]["capped_gap_share"] == pytest.approx(1.0)
    assert scene.found(learn_settings(max_gap=1e9))[2]["capped_gap_share"] == 0


def test_only_scored_turns_without_a_teacher_are_anchored_to_the_base(scene: Scene) -> None:
    scene.samples = [a_sample(scene.samples[2].turn, score) for score in (1, None, 0)]
    scene.advantages = [0.0, 0.0, 0.0]
    _, gradient, _ = scene.found(learn_settings(without_hint="base"))
    of_sample = gradient.abs().sum(-1).split(scene.group().lengths)
    assert [bool(one.any()) for one in of_sample] == [True, False, False]
    assert not scene.found(learn_settings("opd_top_k", without_hint="base"))[1].any()


def test_only_scored_turns_without_a_hint_of_their_own_are_pulled_to_the_earlier_one(scene: Scene) -> None:
    turn = scene.samples[2].turn
    scene.samples = [
        replace(a_sample(turn, score), earlier_hint=hint) for score, hint in ((1, HINT), (1, None), (0, HINT))
    ]
    scene.advantages = [0.0, 0.0, 0.0]
    pulled = learn_settings(without_hint="earlier_hint")
    _, gradient, metrics = scene.found(pulled)
    of_sample = gradient.abs().sum(-1).split(scene.group().lengths)
    assert [bool(one.any()) for one in of_sample] == [True, False, False]
    assert metrics["hinted_samples"] == 0
    assert not scene.found(learn_settings(without_hint="nothing"))[1].any()


def test_a_hint_that_outgrows_the_context_leaves_the_others(scene: Scene) -> None:
    settings = learn_settings(max_hints=3)
    long_hint = "word " * 400
    scene.samples[1] = a_sample(scene.samples[1].turn, -1, *HINTS[:2], long_hint)
    with_long = scene.found(settings, 1)
    scene.samples[1] = a_sample(scene.samples[1].turn, -1, *HINTS[:2])
    assert with_long[0] == scene.found(settings, 1)[0]
    scene.samples[1] = a_sample(scene.samples[1].turn, -1, long_hint)
    for method in ("hybrid", "combined"):
        loss, _, metrics = scene.found(learn_settings(method), 1)
        assert metrics["hinted_samples"] == 0
        assert loss == close(scene.found(learn_settings("binary"), 1)[0])


# --- the running baseline, over steps


def judged(network: Network, template: ChatTemplate, *scores: Any) -> list[Sample]:
    return [
        a_sample(sample_turn(network, template, f"Question {place}", seed=place), score)
        for place, score in enumerate(scores)
    ]


def test_the_baseline_follows_the_scores_and_is_subtracted_from_the_next(
    network: Network, template: ChatTemplate
) -> None:
    trainer = a_trainer(network, template, method="binary", baseline_decay=0.5, reward_weight=1.0)
    good = judged(network, template, 1, 1)
    assert trainer.step(good)["mean_advantage"] == pytest.approx(1.0)
    assert trainer.baseline == 0.5
    assert trainer.step(good)["mean_advantage"] == pytest.approx(0.5)
    assert trainer.baseline == 0.75
    assert trainer.step(judged(network, template, -1))["mean_advantage"] == pytest.approx(-1.75)


def test_turns_without_a_verdict_neither_move_the_baseline_nor_are_measured_by_it(
    network: Network, template: ChatTemplate
) -> None:
    trainer = a_trainer(network, template, method="hybrid", baseline_decay=0.5)
    turns = judged(network, template, 1, None, 0)
    trainer.step([turns[0], *(a_sample(sample.turn, sample.judgement.score, HINT) for sample in turns[1:])])
    assert trainer.baseline == 0.5
    trainer.step([a_sample(turns[1].turn, None, HINT)])
    assert trainer.baseline == 0.5


def test_without_a_decay_there_is_no_baseline(network: Network, template: ChatTemplate) -> None:
    trainer = a_trainer(network, template, method="binary")
    trainer.step(judged(network, template, 1, 1))
    assert trainer.baseline == 0.0


def test_the_baseline_survives_a_checkpoint(
    network: Network, template: ChatTemplate, model_folder: Path, tmp_path: Path
) -> None:
    settings = {"method": "binary", "baseline_decay": 0.5, "reward_weight": 1.0}
    trainer = a_trainer(network, template, **settings)
    trainer.step(judged(network, template, 1, 1))
    folder, _ = checkpoint.save(trainer, model_folder, MODEL, tmp_path, 1)
    resumed = a_trainer(network, template, **settings)
    checkpoint.restore(resumed, folder, MODEL)
    assert resumed.baseline == trainer.baseline == 0.5
    batch = judged(network, template, 1, -1, -1)
    assert resumed.step(batch)["mean_advantage"] == trainer.step(batch)["mean_advantage"]
    assert same(weights_of(resumed), weights_of(trainer))
