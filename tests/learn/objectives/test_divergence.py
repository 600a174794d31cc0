"""The KL estimators and the entropy: formula by formula, and against the exact KL they estimate."""

from __future__ import annotations

import math
from random import Random
from typing import Literal, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_formulas import entropy as expected_entropy
from objective_formulas import kl_estimate, log_softmax, over_samples
from token_batches import Batch, batches, double, log_probs, logits

from openclaw_rl.learn.objectives.divergence import Estimator, entropy, kl_loss, kl_per_token

Token = tuple[float, float]
"""The log-probs of the policy and of the reference."""

tokens = batches(st.tuples(log_probs, log_probs))
Loss = Literal["k2", "k3"]
losses = st.sampled_from(get_args(Loss))
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


def loss_of(batch: Batch[Token], estimator: Loss, batch_size: int = 16) -> float:
    return kl_loss(
        double(batch.column(0)),
        double(batch.column(1)),
        torch.tensor(batch.owners),
        batch_size=batch_size,
        estimator=estimator,
    ).item()


@given(tokens, st.sampled_from(ESTIMATORS))
def test_each_estimate_is_its_formula(batch: Batch[Token], estimator: Estimator) -> None:
    found = kl_per_token(double(batch.column(0)), double(batch.column(1)), estimator).tolist()
    expected = [kl_estimate(current, reference, estimator) for current, reference in batch.tokens]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert estimator == "k1" or min(found) >= -1e-15


@given(tokens, losses, st.integers(1, 64))
def test_the_loss_is_the_mean_of_each_sample(batch: Batch[Token], estimator: Loss, batch_size: int) -> None:
    each = [kl_estimate(current, reference, estimator) for current, reference in batch.tokens]
    expected = over_samples(each, batch.owners, batch_size)
    assert loss_of(batch, estimator, batch_size) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(tokens, losses, st.randoms(use_true_random=False), st.integers(0, 4))
def test_neither_order_nor_passes_matter(
    batch: Batch[Token], estimator: Loss, random: Random, cut: int
) -> None:
    whole = loss_of(batch, estimator)
    assert loss_of(batch.shuffled(random), estimator) == pytest.approx(whole, rel=1e-12)
    parts = [loss_of(part, estimator) for part in batch.passes(cut)]
    assert sum(parts) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_a_difference_every_estimate_is_zero(estimator: Estimator) -> None:
    same = double([-1.0, -7.0, -300.0, 0.0])
    assert not kl_per_token(same, same, estimator).any()


@given(tokens, losses)
def test_float32_stays_finite(batch: Batch[Token], estimator: Loss) -> None:
    current = torch.tensor(batch.column(0), requires_grad=True)
    found = kl_loss(
        current,
        torch.tensor(batch.column(1)),
        torch.tensor(batch.owners),
        batch_size=16,
        estimator=estimator,
    )
    found.backward()
    assert found.isfinite()
    assert current.grad is not None
    assert current.grad.isfinite().all()


@settings(max_examples=25)
@given(batches(st.tuples(st.floats(-9, 0), st.floats(-9, 0))), losses)
def test_gradients_agree_with_finite_differences(batch: Batch[Token], estimator: Loss) -> None:
    def loss(current: torch.Tensor) -> torch.Tensor:
        return kl_loss(
            current,
            double(batch.column(1)),
            torch.tensor(batch.owners),
            batch_size=3,
            estimator=estimator,
        )

    assert torch.autograd.gradcheck(loss, (double(batch.column(0)).requires_grad_(),))


distributions = st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=6)


@given(distributions)
def test_over_all_tokens_k1_and_k3_are_the_kl_itself(pairs: list[tuple[float, float]]) -> None:
    mine, theirs = (log_softmax(column) for column in zip(*pairs, strict=True))
    exact = math.fsum(math.exp(p) * (p - q) for p, q in zip(mine, theirs, strict=True))
    unbiased: tuple[Estimator, ...] = ("k1", "k3")
    for estimator in unbiased:
        each = kl_per_token(double(mine), double(theirs), estimator)
        assert (double(mine).exp() * each).sum().item() == pytest.approx(exact, abs=1e-12)


@given(distributions)
def test_over_all_tokens_the_gradient_of_k2_is_the_kls_and_that_of_k1_is_nothing(
    pairs: list[tuple[float, float]],
) -> None:
    own, reference = (double(column) for column in zip(*pairs, strict=True))
    own.requires_grad_()
    current, theirs = own.log_softmax(0), reference.log_softmax(0)

    def expected_gradient(estimator: Estimator) -> torch.Tensor:
        # Tokens are drawn, so their probabilities weigh the gradients and have none themselves.
        weighed = (current.detach().exp() * kl_per_token(current, theirs, estimator)).sum()
        return torch.autograd.grad(weighed, own, retain_graph=True)[0]

    (exact,) = torch.autograd.grad((current.exp() * (current - theirs)).sum(), own, retain_graph=True)
    torch.testing.assert_close(expected_gradient("k2"), exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(expected_gradient("k1"), torch.zeros_like(exact), rtol=0, atol=1e-12)


@given(st.lists(logits, min_size=1, max_size=6))
def test_the_entropy_is_the_formula(row: list[float]) -> None:
    found = entropy(double([row]).log_softmax(-1))
    assert found.tolist() == pytest.approx([expected_entropy(row)], abs=1e-12)
    assert -1e-12 <= found.item() <= math.log(len(row)) + 1e-12


@given(st.lists(st.sampled_from([-300.0, 0.0, 300.0]) | logits, min_size=1, max_size=6))
def test_the_entropy_and_its_gradient_are_finite_in_float32(row: list[float]) -> None:
    leaf = torch.tensor([row], requires_grad=True)
    found = entropy(leaf.log_softmax(-1))
    found.sum().backward()
    assert found.isfinite().all()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


def test_the_entropys_gradient_agrees_with_finite_differences() -> None:
    leaf = double([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]]).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: entropy(rows.log_softmax(-1)), (leaf,))
