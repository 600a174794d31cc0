"""Linear layers that read the same input, computed as one, and the low-rank term that an adapter adds.

One product for query, key and value costs what the widest of them costs alone, and so do the factors of
an adapter once they are stacked. Knows no model and no attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear

from openclaw_rl.policy.embedded.adapter import Adapter

FEW_ROWS = 32
"""Up to so many rows a CPU multiplies by thin factors faster in float32 than in bfloat16, whose kernels
take longer to start (8 rows, rank 16: 26 us for both factors instead of 90 us)."""


ROWS_STEP = 16
"""Above it prepacked products have a multiple of so many rows."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """The adapter's term for one projection: inputs @ down @ up, its scale in `up`.

    `down` is [inputs, ranks] and `up` [ranks, outputs], in the model's dtype. Where several layers are
    stacked, `up` holds a block for each and zeros between them.
    """

    down: torch.Tensor
    up: torch.Tensor
    float32: tuple[torch.Tensor, torch.Tensor] | None = None
    """The same two numbers by numbers, for a few rows on a CPU."""

    def for_serving(self) -> LowRank:
        """The same, fixed, with what makes decoding fast."""
        down, up = self.down.detach().contiguous(), self.up.detach().contiguous()
        slow_to_start = down.device.type == "cpu" and down.dtype == torch.bfloat16
        return LowRank(down, up, (down.float(), up.float()) if slow_to_start else None)

    def added_to(self, output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """`output` plus the term; `output` itself is changed, which no layer's gradient needs."""
        if self.float32 is not None and len(inputs) <= FEW_ROWS:
            down, up = self.float32
            return output.add_(inputs.float() @ down @ up)
        return output.addmm_(inputs @ self.down, self.up)


class Projection:
    """One or several linear layers of a model. Their outputs lie side by side."""

    def __init__(self, layers: Mapping[str, nn.Linear]) -> None:
        """`layers` by full name. If they are frozen, their weights become views of one tensor."""
        self._layers = dict(layers)
        self.inputs = next(iter(self._layers.values())).in_features
        self.widths = [layer.out_features for layer in self._layers.values()]
        self._trained = any(layer.weight.requires_grad for layer in self._layers.values())
        if not self._trained:
            self._weight = _joined([layer.weight for layer in self._layers.values()])
            biases = [layer.bias for layer in self._layers.values() if layer.bias is not None]
            self._bias = _joined(biases) if biases else None
        self._prepacked: torch.Tensor | None = None

    @property
    def names(self) -> list[str]:
        return list(self._layers)

    @property
    def frozen_weight(self) -> torch.Tensor | None:
        """[sum of widths, inputs]; None where it is trained or is not all there is."""
        return None if self._trained or self._bias is not None else self._weight

    def __call__(self, inputs: torch.Tensor, low_rank: LowRank | None) -> torch.Tensor:
        """[tokens, inputs] to [tokens, sum of widths]."""
        if self._trained:
            output = torch.cat([layer(inputs) for layer in self._layers.values()], dim=-1)
        elif self._prepacked is not None and not torch.is_grad_enabled():
            even = evened(inputs)
            whole = torch.ops.mkldnn._linear_pointwise(even, self._prepacked, self._bias, "none", [], "")
            output = whole[: len(inputs)]
        else:
            output = linear(inputs, self._weight, self._bias)
        return output if low_rank is None else low_rank.added_to(output, inputs)

    def prepack(self) -> None:
        """Also lay frozen bfloat16 weights out as oneDNN reads them, for passes without gradients on a CPU.

        Otherwise each product begins by laying them out anew. The results are the same bits, in two thirds
        of the time (one core, 1 to 64 rows: 21 to 28 ms for all layers of SmolLM2-135M instead of 32 to
        43). Costs their memory once more.
        """
        if not self._trained and can_prepack(self._weight):
            self._prepacked = torch.ops.mkldnn._reorder_linear_weight(self._weight)

    def stacked(self, adapter: Adapter) -> LowRank | None:
        """The adapter's factors for these layers as one pair. Gradients reach the factors."""
        downs, ups, start = [], [], 0
        total = sum(self.widths)
        for (name, layer), width in zip(self._layers.items(), self.widths, strict=True):
            if name in adapter.factors:
                down, up = adapter.factors[name]
                block = up.t() * adapter.scale
                downs.append(down.t())
                ups.append(nn.functional.pad(block, (start, total - start - width)))
                dtype = layer.weight.dtype
            start += width
        if not downs:
            return None
        return LowRank(torch.cat(downs, dim=1).to(dtype), torch.cat(ups).to(dtype))


def evened(inputs: torch.Tensor) -> torch.Tensor:
    """With rows of zeros behind them up to the next multiple of `ROWS_STEP`, unless they are no more than it.

    oneDNN makes a kernel for every number of rows that it meets, and keeps it. Prompts have all lengths, so
    the kernels grew by 100 MB and looked like a leak.
    """
    missing = -len(inputs) % ROWS_STEP if len(inputs) > ROWS_STEP else 0
    return nn.functional.pad(inputs, (0, 0, 0, missing)) if missing else inputs


def can_prepack(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies by such a weight here. In float32 another library does, as fast."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return False
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _joined(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """All rows in one tensor, which the parameters now share."""
    if len(parameters) == 1:
        return parameters[0].detach()
    whole = torch.cat([parameter.detach() for parameter in parameters])
    start = 0
    for parameter in parameters:
        parameter.data = whole[start : start + len(parameter)]
        start += len(parameter)
    return whole
