"""How fast a step could be at best: the matrix products with the model's weights and nothing else.

Each layer's product with its inputs, and in the backward pass with its gradients. What an adapter,
attention, norms, the loss and the optimiser add is left out, so no implementation reaches it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import nn

from openclaw_rl.policy.embedded.network import Network


@torch.inference_mode()
def seconds(network: Network, passes: Sequence[tuple[int, int]]) -> float:
    """For forward and backward passes of so many (tokens, response tokens) each."""
    layers = [module for module in network.model.modules() if isinstance(module, nn.Linear)]
    total = 0.0
    for tokens, response_tokens in passes:
        for layer in layers:
            outputs, inputs = layer.weight.shape
            rows = response_tokens if outputs == network.vocabulary else tokens
            ahead = torch.randn(rows, inputs, dtype=layer.weight.dtype)
            back = torch.randn(rows, outputs, dtype=layer.weight.dtype)
            started = time.perf_counter()
            torch.mm(ahead, layer.weight.t())
            torch.mm(back, layer.weight)
            total += time.perf_counter() - started
    return total
