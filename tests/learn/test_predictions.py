"""The vocabulary projection in pieces: the same numbers and gradients as in one, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from openclaw_rl.learn.predictions import Predictions

ROWS, WIDTH, VOCABULARY, ROWS_AT_ONCE = 23, 8, 101, 4

Read = Callable[[Predictions], torch.Tensor]
READS: dict[str, Read] = {
    "log_probs": lambda predictions: predictions.log_probs(
        torch.arange(ROWS * 3).reshape(ROWS, 3) % VOCABULARY
    ),
    "entropy": lambda predictions: predictions.entropy(),
}


@pytest.fixture
def head() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(WIDTH, VOCABULARY, bias=False)


def predictions(head: nn.Linear, rows_at_once: int) -> Predictions:
    generator = torch.Generator().manual_seed(4)
    hidden = torch.randn(ROWS, WIDTH, generator=generator).requires_grad_()
    temperatures = torch.rand(ROWS, generator=generator).where(torch.arange(ROWS) % 5 > 0, torch.zeros(ROWS))
    return Predictions(hidden, head, temperatures, VOCABULARY, logits_at_once=rows_at_once * VOCABULARY)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_pieces_give_the_numbers_and_gradients_of_the_whole(head: nn.Linear, read: Read) -> None:
    found = []
    for rows_at_once in (ROWS_AT_ONCE, ROWS):
        of = predictions(head, rows_at_once)
        values = read(of)
        weights = torch.linspace(-1, 1, values.numel()).reshape(values.shape)
        found.append([values, *torch.autograd.grad((values * weights).sum(), [of.hidden, head.weight])])
    for in_pieces, whole in zip(*found, strict=True):
        assert in_pieces.abs().sum() > 0
        torch.testing.assert_close(in_pieces, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(("rows_at_once", "fits"), [(ROWS_AT_ONCE, True), (ROWS, False)])
def test_autograd_keeps_no_logits_of_pieces(
    head: nn.Linear, read: Read, rows_at_once: int, fits: bool
) -> None:
    """At once it does keep them, so the measure can tell."""
    of, kept = predictions(head, rows_at_once), 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept = max(kept, tensor.numel() if tensor is not head.weight else 0)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        read(of)
    assert (kept < ROWS_AT_ONCE * VOCABULARY) == fits


@pytest.mark.parametrize("rows_at_once", [ROWS_AT_ONCE, ROWS])
def test_a_frozen_head_gives_the_same_numbers_and_gradients_and_keeps_no_logits(
    head: nn.Linear, rows_at_once: int
) -> None:
    kept, found = [], []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is not head.weight:
            kept.append(tensor.numel())
        return tensor

    of = predictions(head.requires_grad_(False), rows_at_once)
    for frozen in (None, head.weight):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            values = READS["log_probs"](replace(of, head=frozen))
        weights = torch.linspace(-1, 1, values.numel()).reshape(values.shape)
        found.append([values, *torch.autograd.grad((values * weights).sum(), [of.hidden])])
    assert 0 < max(kept) < ROWS_AT_ONCE * VOCABULARY
    for ours, autograds in zip(*reversed(found), strict=True):
        assert autograds.abs().sum() > 0
        torch.testing.assert_close(ours, autograds, rtol=1e-5, atol=1e-6)


def test_the_likeliest_tokens_come_in_order_and_without_gradients(head: nn.Linear) -> None:
    of = predictions(head, ROWS_AT_ONCE)
    likeliest = of.likeliest(3)
    assert likeliest.tolist() == head(of.hidden).topk(3).indices.tolist()
    assert not likeliest.requires_grad


def test_a_split_has_the_rows_of_each_part(head: nn.Linear) -> None:
    of = predictions(head, ROWS_AT_ONCE)
    parts = of.split([5, 1, 17])
    assert [len(part) for part in parts] == [5, 1, 17]
    together = torch.cat([part.entropy() for part in parts])
    torch.testing.assert_close(together, of.entropy())


def test_a_piece_has_a_row_even_where_one_row_is_too_much(head: nn.Linear) -> None:
    of = predictions(head, 0)
    torch.testing.assert_close(of.entropy(), predictions(head, ROWS).entropy())
