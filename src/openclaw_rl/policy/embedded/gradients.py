"""Operations of a forward pass whose gradients are written out, since autograd's take several times as long.

What autograd derives from the parts of an operation reads and writes every intermediate result once more,
and on a CPU memory is what training waits for. All are differentiable once. Know no model.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn.functional import linear

from openclaw_rl.policy.embedded.sampler import log_probs, usable

BLOCK = 256
"""Queries that attend at once: their weights stay in a core's cache."""


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> torch.Tensor:
    output: torch.Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]  # untyped in PyTorch
    return output


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float, dtype: torch.dtype
    ) -> torch.Tensor:
        scale = _scale(hidden, epsilon)
        ctx.save_for_backward(hidden, weight, scale)
        return (hidden * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, scale = ctx.saved_tensors
        weighed = gradients[0] * weight
        along = torch.linalg.vecdot(weighed, hidden).unsqueeze(-1) * scale.pow(3)
        return weighed.mul_(scale).addcmul_(hidden, along, value=-1 / hidden.shape[-1]), None, None, None


def normalised(
    hidden: torch.Tensor, weight: torch.Tensor, epsilon: float, dtype: torch.dtype
) -> torch.Tensor:
    """Root mean square normalisation (arXiv 1910.07467) of the last dimension, times `weight`, in `dtype`.

    `hidden` and `weight` have one dtype, in which it is computed; `weight` is frozen.
    """
    if torch.is_grad_enabled() and hidden.requires_grad:
        return _apply(_Normalised, hidden, weight, epsilon, dtype)
    return (hidden * _scale(hidden, epsilon)).mul_(weight).to(dtype)


def _scale(hidden: torch.Tensor, epsilon: float) -> torch.Tensor:
    """What each vector is multiplied by: [..., 1]."""
    squares: torch.Tensor = torch.linalg.vecdot(hidden, hidden).unsqueeze(-1)
    return squares.div_(hidden.shape[-1]).add_(epsilon).rsqrt_()


class _CausalAttention(torch.autograd.Function):
    """Matrix products over blocks of queries, each with the keys up to its last query."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        kept = []
        for start, end in _blocks(query.shape[1]):
            weights = _weights(_grouped(query, key, start, end), key[:, :end], end - start, scale)
            output[:, start:end] = torch.bmm(weights, value[:, :end]).view(-1, end - start, value.shape[-1])
            kept.append(weights)
        ctx.save_for_backward(query, key, value, *kept)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, *kept = ctx.saved_tensors
        of_query = torch.empty_like(query, memory_format=torch.contiguous_format)
        # Several blocks add to each key and value. In float32, or the sums would be rounded each time.
        wide = torch.promote_types(key.dtype, torch.float32)
        of_key, of_value = (torch.zeros(part.shape, dtype=wide, device=part.device) for part in (key, value))
        for (start, end), weights in zip(_blocks(query.shape[1]), kept, strict=True):
            asking = _grouped(query, key, start, end)
            of_output = _grouped(gradients[0], key, start, end)
            of_value[:, :end] += torch.bmm(weights.transpose(1, 2), of_output)
            of_weights = torch.bmm(of_output, value[:, :end].transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            asked = torch.bmm(of_scores, key[:, :end]).mul_(ctx.scale)
            of_query[:, start:end] = asked.view(-1, end - start, query.shape[-1])
            of_key[:, :end] += torch.bmm(of_scores.transpose(1, 2), asking).mul_(ctx.scale)
        return of_query, of_key.to(key.dtype), of_value.to(value.dtype), None


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal self-attention of one sequence, for training on a CPU.

    `query` is [heads, tokens, head_dim], `key` and `value` [kv_heads, tokens, head_dim]. Returns
    [heads, tokens, head_dim].
    """
    return _apply(_CausalAttention, query, key, value, scale)


class _ChosenLogProbs(torch.autograd.Function):
    """Towards `hidden`, a token's log-prob grows by its row of the head, less the row that is expected.

    What is expected is known as soon as the distribution is, so the logits are neither kept for the
    backward pass nor made anew in it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        token_ids: torch.Tensor,
        temperatures: torch.Tensor,
    ) -> torch.Tensor:
        every = log_probs(linear(hidden, head), temperatures)
        found = every.gather(-1, token_ids)
        expected = every.exp_().to(head.dtype) @ head
        ctx.save_for_backward(head, token_ids, temperatures, expected)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        head, token_ids, temperatures, expected = ctx.saved_tensors
        of_found = gradients[0] / usable(temperatures).unsqueeze(-1)
        chosen = torch.bmm(of_found.unsqueeze(1), head[token_ids].to(of_found.dtype)).squeeze(1)
        of_hidden = chosen.sub_(expected * of_found.sum(-1, keepdim=True))
        return of_hidden.to(expected.dtype), None, None, None


def chosen_log_probs(
    hidden: torch.Tensor, head: torch.Tensor, token_ids: torch.Tensor, temperatures: torch.Tensor
) -> torch.Tensor:
    """`sampler.log_probs` of several tokens, from what a frozen head reads.

    `hidden` is [rows, width], `head` [vocabulary, width], `token_ids` int64 [rows, k] and `temperatures`
    float32 [rows]. Returns float32 [rows, k].
    """
    return _apply(_ChosenLogProbs, hidden, head, token_ids, temperatures)


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def _grouped(part: torch.Tensor, key: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """Of queries `start` to `end`, those that share a key head end to end: [kv_heads, queries, head_dim]."""
    return part[:, start:end].reshape(key.shape[0], -1, part.shape[-1])


def _weights(asking: torch.Tensor, keys: torch.Tensor, count: int, scale: float) -> torch.Tensor:
    """[kv_heads, queries, keys]: each of `count` queries looks at the keys up to its own, the last ones."""
    sharing = asking.shape[1] // count
    unseen = _unseen(count, keys.shape[1], asking.dtype, asking.device).repeat(sharing, 1)
    return torch.baddbmm(unseen, asking, keys.transpose(1, 2), alpha=scale).softmax(-1)


@lru_cache(maxsize=8)
def _unseen(count: int, keys: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[queries, keys]: -inf for the keys after a query, the last `count` of them; else 0."""
    return torch.full((count, keys), float("-inf"), dtype=dtype, device=device).triu_(keys - count + 1)
