"""The forward pass of models built like Llama (Llama, SmolLM2, Mistral, Qwen2, Qwen3), in few operations.

A decode step of a small model takes as long as its operations take to start, and transformers' modules
start several times as many as the computation needs. The weights stay in the transformers model; this
is another way to compute with them. `architecture` says which models fit. Knows no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import rms_norm, silu

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.attention import Attention
from openclaw_rl.policy.embedded.gradients import normalised
from openclaw_rl.policy.embedded.projection import LowRank, Projection


@dataclass(frozen=True, slots=True)
class Norm:
    """Root mean square normalisation (arXiv 1910.07467) with a learned weight, computed in float32."""

    weight: torch.Tensor
    epsilon: float

    @classmethod
    def of(cls, weight: torch.Tensor, epsilon: float) -> Norm:
        return cls(weight if weight.requires_grad else weight.detach().float(), epsilon)

    def __call__(self, hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if self.weight.requires_grad:
            return rms_norm(hidden.float(), self.weight.shape, self.weight.float(), self.epsilon).to(dtype)
        return normalised(hidden.float(), self.weight, self.epsilon, dtype)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: attention, then a gated feed-forward network, each added to what came in."""

    attention_norm: Norm
    query_key_value: Projection
    query_norm: Norm | None
    key_norm: Norm | None
    output: Projection
    feed_forward_norm: Norm
    gate_up: Projection
    down: Projection
    window: int | None

    def projections(self) -> tuple[Projection, Projection, Projection, Projection]:
        return self.query_key_value, self.output, self.gate_up, self.down


LayerFactors = tuple[LowRank | None, ...]
"""What an adapter adds to a block's `projections`, one for each."""


@dataclass(frozen=True, slots=True)
class StackedAdapter:
    """An adapter laid out for a `Decoder`: the factors of each block."""

    layers: Sequence[LayerFactors]

    def for_serving(self) -> StackedAdapter:
        return StackedAdapter([tuple(part and part.for_serving() for part in layer) for layer in self.layers])


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model's weights in the order in which they are used."""

    embedding: nn.Embedding
    rotary: nn.Module
    """The model's own, so that every way to scale positions is what transformers makes of it."""
    blocks: Sequence[Block]
    norm: Norm
    head: Projection
    heads: int
    key_heads: int
    head_width: int
    scale: float

    def prepack(self) -> None:
        """Lay the weights out for decoding: see `Projection.prepack`."""
        for part in (*self.projections(), self.head):
            part.prepack()

    def projections(self) -> Iterator[Projection]:
        """Those of the blocks, in the order in which they are used."""
        for block in self.blocks:
            yield from block.projections()

    def layer_names(self) -> set[str]:
        """The linear layers that an adapter may change, by full name."""
        return {name for part in self.projections() for name in part.names}

    def stacked(self, adapter: Adapter) -> StackedAdapter:
        """Differentiable: gradients reach the adapter's factors."""
        return StackedAdapter(
            [tuple(part.stacked(adapter) for part in block.projections()) for block in self.blocks]
        )

    def hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        keep: torch.Tensor,
        adapter: StackedAdapter | None,
    ) -> torch.Tensor:
        """As `Network.hidden`; `head` turns it into logits."""
        embedded: torch.Tensor = self.embedding(token_ids)
        dtype = embedded.dtype
        cosine, sine = self._rotation(embedded, positions)
        # Every block adds to `hidden`. In float32 that loses nothing, and a token computed alone agrees
        # better with the same token computed among others than it would in bfloat16.
        hidden = embedded.float()
        nothing: LayerFactors = (None, None, None, None)
        for number, block in enumerate(self.blocks):
            for_qkv, for_output, for_gate_up, for_down = adapter.layers[number] if adapter else nothing
            joined = block.query_key_value(block.attention_norm(hidden, dtype), for_qkv)
            attended = self._attend(number, block, joined, cosine, sine, attention)
            hidden = hidden + block.output(attended, for_output)
            gate, up = block.gate_up(block.feed_forward_norm(hidden, dtype), for_gate_up).chunk(2, dim=-1)
            hidden = hidden + block.down(silu(gate) * up, for_down)
        return self.norm(hidden[keep], dtype)

    def _attend(
        self,
        number: int,
        block: Block,
        joined: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        attention: Attention,
    ) -> torch.Tensor:
        """[tokens, heads * head_width] from query, key and value side by side."""
        by_head = joined.view(len(joined), -1, self.head_width)
        # Split, not sliced: the gradient of each slice would be as wide as the whole.
        turning, value = torch.split(by_head, [self.heads + self.key_heads, self.key_heads], dim=1)
        if block.query_norm is not None and block.key_norm is not None:
            query, key = torch.split(turning, [self.heads, self.key_heads], dim=1)
            normed = [block.query_norm(query, joined.dtype), block.key_norm(key, joined.dtype)]
            turning = torch.cat(normed, dim=1)
        turned = torch.addcmul(turning * cosine, turning.roll(self.head_width // 2, -1), sine)
        query, key = torch.split(turned.transpose(0, 1), [self.heads, self.key_heads])
        output = attention(number, query, key, value.transpose(0, 1), self.scale, block.window)
        return output.transpose(0, 1).reshape(len(joined), -1)

    def _rotation(self, hidden: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of rotary embeddings (arXiv 2104.09864), [tokens, 1, head_width].

        The sine of the first half is negative, so that a roll by half a head turns a vector.
        """
        cosine, sine = self.rotary(hidden.unsqueeze(0), positions.unsqueeze(0))
        half = self.head_width // 2
        signed = torch.cat([-sine[..., :half], sine[..., half:]], dim=-1)
        return cosine[0].unsqueeze(1), signed[0].unsqueeze(1)
