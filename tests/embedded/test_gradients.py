"""Gradients that are written out are those of the formulas, and the values are PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from openclaw_rl.policy.embedded import gradients
from openclaw_rl.policy.embedded.attention import SHORT, attend
from openclaw_rl.policy.embedded.gradients import causal_attention, chosen_log_probs, normalised
from openclaw_rl.policy.embedded.sampler import log_probs


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(dtype).requires_grad_()


@pytest.mark.parametrize("shape", [(1, 8), (5, 8), (3, 2, 4)])
def test_gradient_of_the_norm(shape: tuple[int, ...]) -> None:
    weight = numbers(shape[-1], seed=1).detach()
    assert torch.autograd.gradcheck(
        lambda hidden: normalised(hidden, weight, 1e-5, torch.float64), numbers(*shape)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_that_of_pytorch_with_and_without_a_gradient(dtype: torch.dtype) -> None:
    hidden, weight = numbers(7, 64, dtype=torch.float32), numbers(64, seed=1, dtype=torch.float32).detach()
    trained = normalised(hidden, weight, 1e-5, dtype)
    with torch.no_grad():
        served = normalised(hidden, weight, 1e-5, dtype)
    assert torch.equal(trained, served)
    torch.testing.assert_close(served, rms_norm(hidden, (64,), weight, 1e-5).to(dtype))


@pytest.mark.parametrize("tokens", [1, 2, 3, 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
def test_gradients_of_attention(
    monkeypatch: pytest.MonkeyPatch, tokens: int, heads: int, kv_heads: int
) -> None:
    monkeypatch.setattr(gradients, "BLOCK", 2)
    query = numbers(heads, tokens, 3)
    key, value = numbers(kv_heads, tokens, 3, seed=1), numbers(kv_heads, tokens, 3, seed=2)
    assert torch.autograd.gradcheck(lambda *parts: causal_attention(*parts, 0.7), (query, key, value))


def test_attention_of_several_blocks_is_that_of_pytorch() -> None:
    tokens = 2 * gradients.BLOCK + 37
    ours = [numbers(heads, tokens, 16, seed=heads, dtype=torch.float32) for heads in (6, 2, 2)]
    theirs = [part.detach().clone().requires_grad_() for part in ours]
    weights = torch.randn(6, tokens, 16, generator=torch.Generator().manual_seed(9))
    got = causal_attention(*ours, 0.25)
    wanted = scaled_dot_product_attention(
        *(part.unsqueeze(0) for part in theirs), is_causal=True, scale=0.25, enable_gqa=True
    )[0]
    torch.testing.assert_close(got, wanted)
    (got * weights).sum().backward()
    (wanted * weights).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [SHORT, SHORT + 1])
def test_longer_sequences_leave_it_to_pytorch_and_agree(tokens: int) -> None:
    query, key, value = (numbers(1, tokens, 4, seed=seed, dtype=torch.float32) for seed in range(3))
    attended = attend(query, key, value, 0.5, None)
    by_ours = "_CausalAttention" in type(attended.grad_fn).__name__
    assert by_ours == (tokens == SHORT)
    with torch.no_grad():
        torch.testing.assert_close(attended, attend(query, key, value, 0.5, None))


@pytest.mark.parametrize("asked", [1, 3])
def test_gradient_of_log_probs(asked: int) -> None:
    """In float32, which log-probs are computed in: both are compared with autograd's in float64."""
    hidden, head = numbers(4, 6), numbers(11, 6, seed=1).detach()
    token_ids = torch.arange(4 * asked).reshape(4, asked) % 11
    temperatures = torch.tensor([0.7, 1.0, 0.0, 2.0])
    weights = numbers(4, asked, seed=2).detach()
    scaled = hidden @ head.T / torch.tensor([0.7, 1.0, 1.0, 2.0], dtype=torch.float64).unsqueeze(-1)
    wanted = scaled.log_softmax(-1).gather(-1, token_ids)
    (of_wanted,) = torch.autograd.grad((wanted * weights).sum(), hidden)
    ours = hidden.detach().float().requires_grad_()
    got = chosen_log_probs(ours, head.float(), token_ids, temperatures)
    (of_got,) = torch.autograd.grad((got * weights.float()).sum(), ours)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_got.double(), of_wanted, rtol=1e-4, atol=1e-5)


def test_likely_tokens_in_half_precision_have_gradients_as_good_as_autograds() -> None:
    hidden = numbers(32, 64, dtype=torch.bfloat16)
    head = numbers(500, 64, seed=1, dtype=torch.bfloat16).detach()
    temperatures = torch.full((32,), 0.7)
    with torch.no_grad():
        likely = (hidden @ head.T).topk(4).indices

    def gradient(values: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        weights = torch.linspace(-1, 1, values.numel()).reshape(values.shape)
        (found,) = torch.autograd.grad((values * weights).sum(), of)
        return found.double()

    exact = hidden.detach().double().requires_grad_()
    wanted = gradient((exact @ head.double().T / 0.7).log_softmax(-1).gather(-1, likely), exact)
    ours = gradient(chosen_log_probs(hidden, head, likely, temperatures), hidden)
    autograds = gradient(log_probs(hidden @ head.T, temperatures).gather(-1, likely), hidden)
    assert (ours - wanted).norm() <= 1.1 * (autograds - wanted).norm()
