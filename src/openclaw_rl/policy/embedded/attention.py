"""Attention over one flat row of tokens that belong to many sequences.

transformers lets a model use an attention function of ours, so that any of its causal models reads
tokens packed end to end, without padding. An `Attention` says which keys each token sees: all of its
own sequence (`PackedAttention`, for training and scoring) or a cache (`arena`, for serving).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from openclaw_rl.config import ConfigError
from openclaw_rl.policy.embedded.gradients import causal_attention

IMPLEMENTATION = "openclaw_rl"

SHORT = 1024
"""Up to this many tokens matrix products train faster on a CPU than the fused kernel, whose backward pass
is slow there."""


class Attention(Protocol):
    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """Attend for the tokens of one forward pass.

        `query` is [heads, tokens, head_dim]; `key` and `value` are [kv_heads, tokens, head_dim], rotary
        positions applied. Returns [heads, tokens, head_dim]. `window` is the layer's sliding window in
        tokens, None for full attention.
        """
        ...


class UnsupportedModelError(ConfigError):
    """A model that needs something from attention that we do not compute."""


class PackedAttention:
    """Causal attention inside each of several sequences that lie end to end."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        # Split, not sliced: the gradient of each slice would be as long as all sequences together.
        queries, keys, values = (torch.split(part, self._lengths, dim=1) for part in (query, key, value))
        outputs = [
            attend(*of_sequence, scale, window) for of_sequence in zip(queries, keys, values, strict=True)
        ]
        return torch.cat(outputs, dim=1)


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int | None
) -> torch.Tensor:
    """Causal attention of the last `query` tokens of one sequence over all its keys.

    Shapes as in `Attention`, with at least as many keys as queries.
    """
    queries, keys = query.shape[1], key.shape[1]
    on_cpu = query.device.type == "cpu"
    if on_cpu and query.requires_grad and queries == keys <= SHORT and window is None:
        return causal_attention(query, key, value, scale)
    windowed = window is not None and window < keys
    mask = causal_mask(queries, keys, window, query.device) if windowed or 1 < queries < keys else None
    return scaled_dot_product_attention(
        query.unsqueeze(0),
        key.unsqueeze(0),
        value.unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None and queries > 1,
        scale=scale,
        enable_gqa=query.shape[0] != key.shape[0],
    ).squeeze(0)


def causal_mask(queries: int, keys: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Bool [queries, keys], True where a query may look; the last query is aligned with the last key."""
    at = torch.arange(keys - queries, keys, device=device).unsqueeze(1)
    of = torch.arange(keys, device=device).unsqueeze(0)
    mask = of <= at
    return mask if window is None else mask & (of > at - window)


def _from_transformers(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention: Attention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: query [1, heads, tokens, head_dim] in, [1, tokens, heads, head_dim] out."""
    if softcap is not None or s_aux is not None:
        raise UnsupportedModelError(
            "attention with soft caps or sinks is not supported by the embedded engine"
        )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer: int = module.layer_idx  # type: ignore[assignment]  # set by transformers on every attention
    output = attention(layer, query[0], key[0], value[0], scale, sliding_window)
    return output.transpose(0, 1).unsqueeze(0), None


AttentionInterface.register(IMPLEMENTATION, _from_transformers)
