"""How fast decoding could be at best with these weights: their matrix products and nothing else.

`python -m openclaw_rl.evals.serve_bench.products SETTINGS` takes settings as JSON by dotted name; then a line
of JSON for each job. Each step multiplies one row a stream by every weight, laid out as our engine has them.
Norms, attention, adapters, sampling and prompts are left out, so no engine on PyTorch reaches it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from openclaw_rl import config
from openclaw_rl.evals.serve_bench.measure import Pass
from openclaw_rl.evals.serve_bench.worker import answer
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import available_cores
from openclaw_rl.policy.embedded.network import Network

Product = tuple[int, Callable[[torch.Tensor], torch.Tensor]]
"""How wide its input is, and the product."""


def main(arguments: Sequence[str]) -> None:
    settings, _ = config.load(None, json.loads(arguments[0]))
    torch.set_num_threads(settings.engine.threads or available_cores())
    device = model_files.choose_device(settings.model.device)
    network = Network.load(
        model_files.resolve(settings.model.name, print),
        dtype=model_files.choose_dtype(settings.model.dtype, device),
        device=device,
        adapter_targets=(),
    )
    network.prepack()
    products = _products(network)

    def do(asked: dict[str, Any]) -> dict[str, Any]:
        return decode(products, len(asked["prompts"]), asked["tokens"], network).to_json()

    answer({}, do)


@torch.inference_mode()
def decode(products: Sequence[Product], rows: int, steps: int, network: Network) -> Pass:
    """So many steps of so many rows."""
    inputs = {
        width: torch.randn(rows, width, dtype=network.dtype, device=network.device) for width, _ in products
    }
    started = time.perf_counter()
    for _ in range(steps):
        for width, product in products:
            last = product(inputs[width])
        last[0, 0].item()  # waits for a device that computes by itself
    return Pass(time.perf_counter() - started, rows * steps)


def _products(network: Network) -> list[Product]:
    if network.decoder is None:
        layers = (module for module in network.model.modules() if isinstance(module, nn.Linear))
        return [(layer.in_features, layer) for layer in layers]
    parts = (*network.decoder.projections(), network.decoder.head)
    return [(part.inputs, partial(part, low_rank=None)) for part in parts]


if __name__ == "__main__":
    main(sys.argv[1:])
