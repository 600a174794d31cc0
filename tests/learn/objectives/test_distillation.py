"""Both distillation losses against the formulas written out in float64, and what they promise of gradients.

Entries that do not count hold NaN in every tensor here, so a value that is not there and is read shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_formulas import (
    Bounds,
    Entry,
    between,
    clipped,
    hybrid,
    hybrid_advantages,
    log_softmax,
    over_samples,
    ratio,
    reverse_kl,
)
from token_batches import (
    Batch,
    SetTensors,
    compared_batches,
    distribution_batches,
    double,
    logits,
    moderate_logits,
    set_tensors,
)

from openclaw_rl.learn.objectives.distillation import reverse_kl_with_tail, top_k_surrogate

PAPER = Bounds()
bounds = st.builds(Bounds, st.floats(0.01, 0.9), st.floats(0.01, 5), st.just(math.inf))
Sets = Batch[list[Entry]]


def surrogate(
    tensors: SetTensors, max_gap: float = 1.0, limits: Bounds = PAPER, batch_size: int = 16
) -> torch.Tensor:
    return top_k_surrogate(
        tensors.current,
        tensors.behaviour,
        tensors.teacher,
        tensors.kept,
        tensors.sample,
        batch_size=batch_size,
        max_gap=max_gap,
        clip_low=limits.low,
        clip_high=limits.high,
    )


def kl(tensors: SetTensors, batch_size: int = 16) -> torch.Tensor:
    return reverse_kl_with_tail(
        tensors.current, tensors.teacher, tensors.kept, tensors.sample, batch_size=batch_size
    )


Loss = Callable[[SetTensors], torch.Tensor]
both = pytest.mark.parametrize("loss", [surrogate, kl])


def scale_of(batch: Sets) -> float:
    """The largest term of a sum, which its rounding errors are measured against."""
    ratios = [ratio(e.current, e.behaviour) for entries in batch.tokens for e in entries if e.kept]
    return max([1000.0, *ratios])


def gradient(loss: torch.Tensor, tensors: SetTensors) -> torch.Tensor:
    (found,) = torch.autograd.grad(loss, tensors.current)
    return found


@given(compared_batches(), st.floats(0.01, 400), bounds, st.integers(1, 64))
def test_the_surrogate_is_the_formula(batch: Sets, max_gap: float, limits: Bounds, batch_size: int) -> None:
    each = [hybrid(entries, max_gap, limits) for entries in batch.tokens]
    expected = over_samples(each, batch.owners, batch_size)
    found = surrogate(set_tensors(batch), max_gap, limits, batch_size).item()
    assert abs(found - expected) <= 1e-11 * scale_of(batch)


@given(distribution_batches(), st.integers(1, 64))
def test_the_kl_is_the_formula(batch: Sets, batch_size: int) -> None:
    expected = over_samples([reverse_kl(entries) for entries in batch.tokens], batch.owners, batch_size)
    assert kl(set_tensors(batch), batch_size).item() == pytest.approx(expected, rel=1e-7, abs=1e-7)


@both
@given(batch=distribution_batches(), random=st.randoms(use_true_random=False))
def test_neither_the_order_of_samples_nor_that_of_entries_matters(
    loss: Loss, batch: Sets, random: Random
) -> None:
    order = random.sample(range(len(batch.tokens[0])), len(batch.tokens[0]))
    turned = Batch([[[entries[place] for place in order] for entries in s] for s in batch.samples])
    found = loss(set_tensors(turned.shuffled(random))).item()
    assert abs(found - loss(set_tensors(batch)).item()) <= 1e-9 * scale_of(batch)


@both
@given(batch=distribution_batches(), cut=st.integers(0, 4))
def test_losses_of_passes_add_up_to_the_loss_of_the_batch(loss: Loss, batch: Sets, cut: int) -> None:
    summed = sum(loss(set_tensors(part)).item() for part in batch.passes(cut))
    assert abs(summed - loss(set_tensors(batch)).item()) <= 1e-9 * scale_of(batch)


@both
@given(batch=distribution_batches(), unread=st.sampled_from([math.inf, -math.inf, 0.0, 5.0]))
def test_what_stands_in_an_entry_that_does_not_count_changes_nothing(
    loss: Loss, batch: Sets, unread: float
) -> None:
    with_nan, with_other = set_tensors(batch), set_tensors(batch, in_the_gaps=unread)
    first, second = loss(with_nan), loss(with_other)
    assert first.isfinite()
    assert first.item() == second.item()
    found = gradient(first, with_nan)
    assert found.isfinite().all()
    assert not found[~with_nan.kept].any()
    assert torch.equal(found, gradient(second, with_other))


@both
@given(batch=distribution_batches())
def test_a_token_of_which_nothing_counts_adds_nothing_and_gets_no_gradient(loss: Loss, batch: Sets) -> None:
    none_counts = Batch([[[e._replace(kept=False) for e in entries] for entries in s] for s in batch.samples])
    tensors = set_tensors(none_counts)
    found = loss(tensors)
    assert found.item() == 0
    assert not gradient(found, tensors).any()
    # Beside tokens that count it is one of the sample's tokens, which the mean is over.
    doubled = Batch([[*some, *none] for some, none in zip(batch.samples, none_counts.samples, strict=True)])
    expected = loss(set_tensors(batch)).item() / 2
    assert abs(loss(set_tensors(doubled)).item() - expected) <= 1e-9 * scale_of(batch)


@both
@given(batch=compared_batches() | distribution_batches())
def test_float32_stays_finite_for_any_log_probs(loss: Loss, batch: Sets) -> None:
    tensors = set_tensors(batch, torch.float32)
    found = loss(tensors)
    assert found.isfinite()
    assert gradient(found, tensors).isfinite().all()


@both
def test_the_teacher_and_the_old_policy_get_no_gradient(loss: Loss) -> None:
    tensors = set_tensors(Batch([[[Entry(-0.7, -0.9, -0.5), Entry(-1.2, -1.1, -1.4)]]]))
    tensors.teacher.requires_grad_()
    tensors.behaviour.requires_grad_()
    loss(tensors).backward()
    assert tensors.teacher.grad is None
    assert tensors.behaviour.grad is None


# --- the surrogate


rows_of_logits = st.integers(2, 6).flatmap(
    lambda size: st.lists(
        st.tuples(*[st.lists(logits, min_size=size, max_size=size)] * 2), min_size=1, max_size=4
    )
)


@given(rows_of_logits, st.floats(0.1, 5), st.randoms(use_true_random=False))
def test_at_ratio_one_the_gradient_of_the_logits_is_minus_the_advantages_times_their_directions(
    rows: list[tuple[list[float], list[float]]], max_gap: float, random: Random
) -> None:
    size = len(rows[0][0])
    chosen = [random.sample(range(size), random.randint(1, size))] * len(rows)
    leaf = double([own for own, _ in rows]).requires_grad_()
    current = leaf.log_softmax(-1).gather(-1, torch.tensor(chosen))
    teacher = double([taught for _, taught in rows]).log_softmax(-1).gather(-1, torch.tensor(chosen))
    everything = torch.ones_like(current, dtype=torch.bool)
    sets = SetTensors(
        current, current.detach(), teacher, everything, torch.zeros(len(rows), dtype=torch.int64)
    )
    surrogate(sets, max_gap).backward()
    expected = []
    for (own, taught), ids in zip(rows, chosen, strict=True):
        mine, theirs = log_softmax(own), log_softmax(taught)
        advantages = hybrid_advantages([Entry(mine[v], mine[v], theirs[v]) for v in ids], max_gap)
        assert math.fsum(map(abs, advantages)) <= max_gap * (1 + 1e-9)
        row = [math.fsum(advantages) * math.exp(one) for one in mine]
        for v, advantage in zip(ids, advantages, strict=True):
            row[v] -= advantage
        expected.append([value / len(rows) / 16 for value in row])
    torch.testing.assert_close(leaf.grad, double(expected), rtol=1e-9, atol=1e-12)


@given(st.floats(-5, 0), st.floats(-5, 0), st.floats(-5, 0), st.floats(0.1, 3))
def test_with_one_token_compared_the_advantage_is_the_capped_gap_alone(
    current: float, behaviour: float, teacher: float, max_gap: float
) -> None:
    one = set_tensors(Batch([[[Entry(current, behaviour, teacher)]]]))
    expected = clipped(current, behaviour, between(-max_gap, teacher - behaviour, max_gap), PAPER)
    assert surrogate(one, max_gap, batch_size=1).item() == pytest.approx(expected, abs=1e-12)


def test_a_teacher_that_agrees_teaches_nothing() -> None:
    agreeing = set_tensors(Batch([[[Entry(-0.3, -0.9, -0.9), Entry(-2.0, -1.1, -1.1)]]]))
    found = surrogate(agreeing)
    assert found.item() == 0
    assert not gradient(found, agreeing).any()


# Log-ratios on both sides of both bounds, none within 0.03 of one.
away_from_bounds = st.sampled_from([-1.0, -0.4, -0.15, 0.0, 0.1, 0.2, 0.3, 1.5])


@settings(max_examples=25)
@given(distribution_batches(), st.data())
def test_the_surrogates_gradients_agree_with_finite_differences(batch: Sets, data: st.DataObject) -> None:
    tensors = set_tensors(batch, in_the_gaps=-1.0)
    ratios = [[data.draw(away_from_bounds) for _ in entries] for entries in batch.tokens]
    current = (tensors.behaviour + double(ratios)).detach().requires_grad_()

    def loss(current: torch.Tensor) -> torch.Tensor:
        return surrogate(
            SetTensors(current, tensors.behaviour, tensors.teacher, tensors.kept, tensors.sample)
        )

    assert torch.autograd.gradcheck(loss, (current,))


# --- the KL


def masses(log_probs: list[float]) -> list[float]:
    inside = [math.exp(one) for one in log_probs]
    return [*inside, 1 - math.fsum(inside)]


@given(distribution_batches())
def test_the_kl_is_at_least_half_the_squared_distance_and_so_zero_only_between_equals(batch: Sets) -> None:
    for entries in batch.tokens:
        kept = [entry for entry in entries if entry.kept]
        mine, theirs = masses([e.current for e in kept]), masses([e.teacher for e in kept])
        distance = math.fsum(abs(p - q) for p, q in zip(mine, theirs, strict=True))
        # Pinsker's inequality; the tail is kept from 0, which may cost a ten-millionth.
        assert kl(set_tensors(Batch([[entries]])), 1).item() >= distance**2 / 2 - 1e-6


@given(distribution_batches())
def test_between_equals_kl_and_gradient_are_zero(batch: Sets) -> None:
    equal = Batch(
        [[[e._replace(teacher=e.current) for e in entries] for entries in s] for s in batch.samples]
    )
    tensors = set_tensors(equal)
    found = kl(tensors)
    assert found.item() == 0
    # Of log-probs the gradient is the mass itself; of logits it is nothing.
    leaf = double([0.3, -1.0, 2.0]).requires_grad_()
    current = leaf.log_softmax(0)[:2].unsqueeze(0)
    everything = torch.ones_like(current, dtype=torch.bool)
    kl(SetTensors(current, current, current.detach(), everything, torch.tensor([0]))).backward()
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), rtol=0, atol=1e-15)


@given(distribution_batches(moderate_logits, left_out=1, kept=st.just(True)))
def test_with_all_tokens_but_one_the_tail_is_that_one_and_the_kl_is_whole(batch: Sets) -> None:
    expected = []
    for entries in batch.tokens:
        mine, theirs = [e.current for e in entries], [e.teacher for e in entries]
        p, q = masses(mine), masses(theirs)
        expected.append(math.fsum(one * math.log(one / other) for one, other in zip(p, q, strict=True)))
    assert kl(set_tensors(batch), 1).item() == pytest.approx(
        over_samples(expected, batch.owners, 1), rel=1e-9, abs=1e-9
    )


def test_moving_mass_out_of_the_set_costs_what_the_teacher_says() -> None:
    inside = set_tensors(Batch([[[Entry(math.log(0.9), 0, math.log(0.9))]]]))
    outside = set_tensors(Batch([[[Entry(math.log(0.1), 0, math.log(0.9))]]]))
    assert kl(inside, 1).item() == 0
    assert kl(outside, 1).item() == pytest.approx(0.8 * math.log(9))


def test_a_set_that_covers_everything_has_a_tail_of_a_ten_millionth() -> None:
    # All mass on one token, and the teacher's too: the gap in the tail is nothing, not minus infinity.
    certain = set_tensors(Batch([[[Entry(0.0, 0.0, 0.0), Entry(-300.0, -300.0, -300.0)]]]), torch.float32)
    found = kl(certain)
    assert found.item() == pytest.approx(0.0, abs=1e-6)
    assert gradient(found, certain).isfinite().all()


@settings(max_examples=25)
@given(
    st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.lists(st.tuples(*[st.floats(-2, 2)] * 2), min_size=size, max_size=size), min_size=1, max_size=4
        )
    )
)
def test_the_kls_gradients_agree_with_finite_differences(rows: list[list[tuple[float, float]]]) -> None:
    own, taught = (double([[pair[place] for pair in row] for row in rows]) for place in (0, 1))
    kept = torch.ones(len(rows), len(rows[0]) - 1, dtype=torch.bool)
    kept[0, 0] = False
    teacher = taught.log_softmax(-1)[:, :-1]
    sample = torch.tensor([place // 2 for place in range(len(rows))])

    def loss(leaf: torch.Tensor) -> torch.Tensor:
        return kl(SetTensors(leaf.log_softmax(-1)[:, :-1], teacher, teacher, kept, sample), 3)

    assert torch.autograd.gradcheck(loss, (own.requires_grad_(),))
