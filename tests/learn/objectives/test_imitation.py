"""The cross-entropy of accepted replies against the formula, number by number in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_formulas import over_samples
from token_batches import Batch, batches, log_probs

from openclaw_rl.learn.objectives.imitation import imitation


def found(batch: Batch[float], accepted: list[bool], size: int = 16) -> torch.Tensor:
    owners = torch.tensor(batch.owners)
    current = torch.tensor(batch.tokens, dtype=torch.float64)
    return imitation(current, torch.tensor(accepted)[owners], owners, batch_size=size)


@given(batches(log_probs), st.data(), st.integers(1, 64))
def test_imitation_is_the_formula(batch: Batch[float], data: st.DataObject, size: int) -> None:
    count = len(batch.samples)
    accepted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    each = [-value * accepted[owner] for value, owner in zip(batch.tokens, batch.owners, strict=True)]
    assert found(batch, accepted, size).item() == pytest.approx(over_samples(each, batch.owners, size))


def test_only_accepted_replies_have_a_gradient_even_beside_an_impossible_one() -> None:
    current = torch.tensor([-1.0, -2.0, float("-inf")], requires_grad=True)
    loss = imitation(current, torch.tensor([True, True, False]), torch.tensor([0, 0, 1]), batch_size=2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(0.75)
    assert current.grad is not None
    assert current.grad.tolist() == [-0.25, -0.25, 0.0]
