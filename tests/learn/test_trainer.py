"""One optimiser step on a tiny real model: what moves, in which direction, and what it reports."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from judged_samples import HINT, a_sample, a_trainer, same, some_samples, weights_of
from learnable_model import load_network, sample_turn

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn.batch import student, teacher
from openclaw_rl.learn.trainer import NotFiniteError, Trainer
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.attention import SHORT
from openclaw_rl.policy.embedded.gradients import BLOCK
from openclaw_rl.policy.embedded.network import Network

METHODS = ("binary", "opd", "opd_top_k", "combined", "hybrid")


def scores(trainer: Trainer, sample: Sample, *, use_base: bool = False) -> torch.Tensor:
    """The reply's log-probs, token by token."""
    return trainer.log_probs([student(0, sample)], use_base=use_base)[0].clone()


def gap_to_teacher(trainer: Trainer, sample: Sample, template: ChatTemplate) -> torch.Tensor:
    taught = trainer.log_probs([teacher(0, sample, sample.hint or "", template)], use_base=True)[0]
    return taught - torch.tensor(sample.turn.logprobs)


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in trainer.parameters.items():
        assert parameter.grad is not None
        found[name] = parameter.grad.clone()
    return found


def stir(trainer: Trainer) -> None:
    """Give both factors of every layer something to do, as after many steps."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in trainer.parameters.values():
            parameter.add_(torch.randn_like(parameter) * 0.05)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_at_the_start_the_trainer_scores_a_turn_as_the_engine_did(
    network: Network, template: ChatTemplate, temperature: float
) -> None:
    trainer = a_trainer(network, template)
    samples = some_samples(network, template, temperature=temperature)
    found = trainer.log_probs([student(index, sample) for index, sample in enumerate(samples)])
    for index, sample in enumerate(samples):
        torch.testing.assert_close(found[index], torch.tensor(sample.turn.logprobs), rtol=0, atol=1e-4)
    metrics = trainer.step(samples)
    assert metrics["log_prob_gap"] < 1e-4
    assert metrics["mean_ratio"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["clipped_share"] == 0.0


@pytest.mark.parametrize(("words", "longer_than"), [(70, BLOCK), (260, SHORT)])
def test_a_long_prompt_is_trained_as_it_was_sampled(
    network: Network, template: ChatTemplate, words: int, longer_than: int
) -> None:
    turn = sample_turn(network, template, "word " * words)
    assert len(turn.prompt_ids) > longer_than  # attention takes another way from here on
    trainer = a_trainer(network, template, kl_weight=0.1)
    metrics = trainer.step([a_sample(turn, -1, HINT), a_sample(sample_turn(network, template))])
    assert metrics["log_prob_gap"] < 1e-4
    before = scores(trainer, a_sample(turn)).sum()
    trainer.step([a_sample(turn, -1)])
    assert scores(trainer, a_sample(turn)).sum() < before


def test_a_turn_sampled_with_an_adapter_is_scored_the_same_by_its_trainer(
    network: Network, template: ChatTemplate
) -> None:
    trainer = a_trainer(network, template)
    stir(trainer)
    sample = a_sample(sample_turn(network, template, adapter=trainer.adapter, temperature=0.7))
    torch.testing.assert_close(scores(trainer, sample), torch.tensor(sample.turn.logprobs), rtol=0, atol=1e-4)
    assert (scores(trainer, sample) - scores(trainer, sample, use_base=True)).abs().max() > 1e-3


def test_every_factor_has_moved_after_two_steps_and_nothing_frozen_has(
    network: Network, template: ChatTemplate
) -> None:
    frozen = {name: tensor.clone() for name, tensor in network.model.state_dict().items()}
    samples = some_samples(network, template)
    trainer = a_trainer(network, template)
    start = weights_of(trainer)
    assert len(start) == 2 * 7 * 2  # factors, layer kinds, layers
    trainer.step(samples)
    first = weights_of(trainer)
    for name in start:
        # `up` starts at zero, so at the first step no gradient reaches `down`.
        assert torch.equal(first[name], start[name]) is ("lora_A" in name), name
    trainer.step(samples)
    second = weights_of(trainer)
    assert not [name for name in start if torch.equal(second[name], first[name])]
    assert same(dict(network.model.state_dict()), frozen)
    assert not any(parameter.requires_grad for parameter in network.model.parameters())


def test_an_adapter_of_a_bfloat16_model_is_trained_in_float32(
    model_folder: Path, template: ChatTemplate
) -> None:
    network = load_network(model_folder, dtype=torch.bfloat16)
    trainer = a_trainer(network, template, learning_rate=1e-5)
    turn = sample_turn(network, template)
    metrics = trainer.step([a_sample(turn, 1)])
    assert metrics["log_prob_gap"] < 0.02
    assert {tensor.dtype for tensor in trainer.parameters.values()} == {torch.float32}
    moved = [tensor.abs().max().item() for name, tensor in trainer.parameters.items() if "lora_B" in name]
    assert moved == pytest.approx([1e-5] * len(moved), rel=0.1)  # a step of Adam, not rounded away


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_a_sample_with_score_and_hint(
    network: Network, template: ChatTemplate, method: str
) -> None:
    trainer = a_trainer(network, template, method=method)
    start = weights_of(trainer)
    sample = a_sample(sample_turn(network, template), -1, HINT)
    metrics = trainer.step([sample])
    assert metrics["grad_norm"] > 0
    assert metrics["loss"] != 0
    assert not same(weights_of(trainer), start)


@pytest.mark.parametrize(("method", "score", "hint"), [("binary", 0, HINT), ("opd", 1, None)])
def test_a_method_takes_nothing_from_the_other_methods_signal(
    network: Network, template: ChatTemplate, method: str, score: Any, hint: str | None
) -> None:
    trainer = a_trainer(network, template, method=method)
    start = weights_of(trainer)
    metrics = trainer.step([a_sample(sample_turn(network, template), score, hint)])
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)
    assert same(weights_of(trainer), start)


def test_combined_advantages_are_the_score_plus_the_gap_to_the_teacher(
    network: Network, template: ChatTemplate
) -> None:
    turn = sample_turn(network, template)
    weights = {"reward_weight": 0.5, "hint_weight": 2.0}
    trainer = a_trainer(network, template, method="combined", **weights)
    hinted, plain = a_sample(turn, -1, HINT), a_sample(turn, 1)
    gap = gap_to_teacher(trainer, hinted, template)
    metrics = trainer.step([hinted, plain])
    # At ratio 1 a sample's loss is minus its mean advantage.
    assert metrics["loss"] == pytest.approx(-((-0.5 + 2 * gap.mean().item()) + 0.5) / 2, abs=1e-4)
    assert metrics["teacher_gap"] == pytest.approx(gap.mean().item(), abs=1e-5)
    assert metrics["mean_advantage"] == pytest.approx(gap.mean().item(), abs=1e-4)
    assert (metrics["samples"], metrics["hinted_samples"], metrics["mean_reward"]) == (2, 1, 0)
    assert metrics["tokens"] == 2 * len(turn.response_ids)


@pytest.mark.parametrize("score", [1, -1])
def test_binary_makes_a_rewarded_reply_likelier_and_a_punished_one_less_likely(
    network: Network, template: ChatTemplate, score: Any
) -> None:
    trainer = a_trainer(network, template, method="binary")
    sample = a_sample(sample_turn(network, template), score)
    before = scores(trainer, sample).sum()
    trainer.step([sample])
    after = scores(trainer, sample).sum()
    assert (after - before) * score > 1e-3


def test_opd_moves_each_token_the_way_the_teacher_leans(network: Network, template: ChatTemplate) -> None:
    leanings = set()
    for seed in range(8):
        sample = a_sample(sample_turn(network, template, max_tokens=1, seed=seed), None, HINT)
        trainer = a_trainer(network, template, method="opd")
        gap = gap_to_teacher(trainer, sample, template)
        before = scores(trainer, sample)
        trainer.step([sample])
        change = scores(trainer, sample) - before
        assert gap.sign().item() == change.sign().item()
        leanings.add(gap.sign().item())
    assert leanings == {-1.0, 1.0}


def test_opd_brings_the_policy_nearer_to_the_teacher_over_a_whole_reply(
    network: Network, template: ChatTemplate
) -> None:
    sample = a_sample(sample_turn(network, template, max_tokens=24), None, HINT)
    trainer = a_trainer(network, template, method="opd", clip_low=0.9, clip_high=9)
    gap = gap_to_teacher(trainer, sample, template)
    before = scores(trainer, sample)
    for _ in range(5):
        trainer.step([sample])
    change = scores(trainer, sample) - before
    assert change[gap > 0].mean() > 0
    assert change[gap < 0].mean() < 0


def test_the_ratio_is_to_the_recorded_log_probs(network: Network, template: ChatTemplate) -> None:
    turn = sample_turn(network, template)
    # Beyond the clip (1.28), and not so far that the whole sample is left out (2).
    older = replace(turn, logprobs=tuple(logprob - math.log(1.6) for logprob in turn.logprobs))
    trainer = a_trainer(network, template, method="binary")
    start = weights_of(trainer)
    metrics = trainer.step([a_sample(older, 1)])
    assert metrics["mean_ratio"] == pytest.approx(1.6, abs=1e-3)
    assert metrics["log_prob_gap"] == pytest.approx(math.log(1.6), abs=1e-4)
    assert metrics["drifted_samples"] == 0
    # So much likelier than when it was sampled: nothing more to reward.
    assert metrics["clipped_share"] == 1.0
    assert same(weights_of(trainer), start)


def test_many_small_passes_give_the_gradient_of_one(network: Network, template: ChatTemplate) -> None:
    samples = some_samples(network, template)
    passes: list[int] = []
    found = []
    for tokens_per_pass in (64, 4096):
        settings = LearnSettings(
            method="combined", lora_rank=4, kl_weight=0.1, tokens_per_pass=tokens_per_pass
        )
        counted: list[None] = []
        trainer = Trainer(network, template, settings, before_pass=partial(counted.append, None))
        stir(trainer)
        metrics = trainer.step(samples)
        passes.append(len(counted))
        found.append((gradients(trainer), metrics))
    assert passes[0] > passes[1] == 4  # the teacher's, the reference's, forward and backward
    (small, small_metrics), (large, large_metrics) = found
    for name in large:
        torch.testing.assert_close(small[name], large[name], rtol=1e-3, atol=1e-6)
    for name in large_metrics:
        if not name.startswith("seconds"):
            assert small_metrics[name] == pytest.approx(large_metrics[name], rel=1e-3, abs=1e-5), name


def test_the_order_of_the_samples_does_not_change_the_step(network: Network, template: ChatTemplate) -> None:
    samples = some_samples(network, template)
    one, other = a_trainer(network, template), a_trainer(network, template)
    stir(one)
    stir(other)
    one.step(samples)
    other.step(samples[::-1])
    first, second = gradients(one), gradients(other)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", ["binary", "combined"])
def test_a_loss_that_is_not_finite_leaves_weights_and_optimiser_alone(
    network: Network, template: ChatTemplate, method: str
) -> None:
    # The gradient of a NaN ratio is 0 once it is clamped: with binary only the loss tells.
    good = some_samples(network, template)
    broken = replace(good[0].turn, logprobs=(math.nan,) * len(good[0].turn.logprobs))
    trainer = a_trainer(network, template, method=method)
    untroubled = a_trainer(network, template, method=method)
    trainer.step(good)
    untroubled.step(good)
    with pytest.raises(NotFiniteError):
        trainer.step([a_sample(broken, 1, HINT), *good[1:]])
    assert same(weights_of(trainer), weights_of(untroubled))
    trainer.step(good)
    untroubled.step(good)
    assert same(weights_of(trainer), weights_of(untroubled))


def test_a_gradient_that_overflows_is_not_taken(network: Network, template: ChatTemplate) -> None:
    trainer = a_trainer(network, template, reward_weight=3e38)
    start = weights_of(trainer)
    with pytest.raises(NotFiniteError):
        trainer.step([a_sample(sample_turn(network, template), -1)])
    assert same(weights_of(trainer), start)


def test_the_kl_to_the_base_is_zero_at_first_grows_and_is_held_back_by_its_weight(
    network: Network, template: ChatTemplate
) -> None:
    samples = some_samples(network, template)
    kls = {}
    for kl_weight in (1e-9, 5.0):
        trainer = a_trainer(network, template, kl_weight=kl_weight, learning_rate=3e-3)
        found = [trainer.step(samples)["kl_to_base"] for _ in range(6)]
        assert found[0] == pytest.approx(0.0, abs=1e-9)
        assert found[-1] > 0
        kls[kl_weight] = found[-1]
    assert kls[5.0] < kls[1e-9]
    assert "kl_to_base" not in a_trainer(network, template).step(samples)


def test_a_teacher_that_is_the_current_policy_teaches_what_it_has_become(
    network: Network, template: ChatTemplate
) -> None:
    sample = a_sample(sample_turn(network, template), None, HINT)
    gaps: dict[str, list[float]] = {}
    for who in ("base", "current"):
        trainer = a_trainer(network, template, method="opd", teacher=who)
        gaps[who] = [trainer.step([sample])["teacher_gap"] for _ in range(4)]
    assert gaps["base"][0] == pytest.approx(gaps["current"][0], abs=1e-6)  # they are the same as yet
    assert gaps["base"] == pytest.approx([gaps["base"][0]] * 4)  # the base stays what it was
    assert abs(gaps["current"][-1] - gaps["base"][-1]) > 1e-3


def test_full_fine_tuning_moves_every_weight_and_leaves_the_base(
    model_folder: Path, template: ChatTemplate
) -> None:
    trained = load_network(model_folder, trainable=True, adapted=False)
    base = load_network(model_folder, adapted=False)
    frozen = {name: tensor.clone() for name, tensor in base.model.state_dict().items()}
    settings = LearnSettings(full_fine_tuning=True, learning_rate=1e-4, kl_weight=0.1)
    trainer = Trainer(trained, template, settings, base)
    assert trainer.adapter is None
    start = weights_of(trainer)
    samples = some_samples(base, template)
    first = trainer.step(samples)
    assert first["kl_to_base"] == pytest.approx(0.0, abs=1e-9)
    after = weights_of(trainer)
    assert not [name for name in start if torch.equal(start[name], after[name])]
    assert after.keys() == dict(trained.model.named_parameters()).keys()
    assert trainer.step(samples)["kl_to_base"] > 0
    assert same(dict(base.model.state_dict()), frozen)


def test_metrics_say_where_the_time_went(network: Network, template: ChatTemplate) -> None:
    metrics = a_trainer(network, template, kl_weight=0.1).step(some_samples(network, template))
    for part in ("teacher", "reference", "forward", "backward", "optimiser"):
        assert metrics[f"seconds_{part}"] > 0


def test_the_learning_rate_falls_with_the_updates_to_a_tenth_at_the_least(
    network: Network, template: ChatTemplate
) -> None:
    samples = some_samples(network, template)
    falling = a_trainer(network, template, learning_rate=1e-4, decay_updates=10)
    rates = [falling.step(samples, before)["learning_rate"] for before in (0, 10, 1000)]
    assert rates == pytest.approx([1e-4, 5e-5, 1e-5])
    constant = a_trainer(network, template, learning_rate=1e-4, decay_updates=0)
    assert constant.step(samples, 1000)["learning_rate"] == 1e-4
    start = weights_of(constant)
    constant.step(samples, 1000)
    first = weights_of(falling)
    falling.step(samples, 1000)
    moved = [(weights_of(falling)[name] - first[name]).abs().max() for name in first if "lora_B" in name]
    full = [(weights_of(constant)[name] - start[name]).abs().max() for name in start if "lora_B" in name]
    assert max(moved) < max(full) / 3
