"""A LoRA adapter: what one policy version adds to the frozen weights, and its file.

The file is PEFT's (adapter_model.safetensors beside adapter_config.json), so that any server that loads
PEFT adapters loads ours. Factors are kept factored, never merged: merged into bfloat16 weights a small
update would be lost to rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
_PREFIX = "base_model.model."
_ALPHA = "lora_alpha"
"""In the config, and among the metadata of the weights, whose hash is recorded."""

Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Layer name to (down [rank, inputs], up [outputs, rank])."""


class MisfitError(ValueError):
    """The adapter is of other layers."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Low-rank factors for some layers: layer(x) + scale * up(down(x))."""

    factors: Factors
    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @classmethod
    def fresh(cls, layers: Mapping[str, nn.Linear], rank: int, alpha: float, seed: int) -> Adapter:
        """A float32 adapter that changes nothing yet: `down` random, `up` zero."""
        generator = torch.Generator().manual_seed(seed)
        factors: Factors = {}
        for name, layer in layers.items():
            bound = 1 / math.sqrt(layer.in_features)
            down = torch.empty(rank, layer.in_features).uniform_(-bound, bound, generator=generator)
            up = torch.zeros(layer.out_features, rank)
            device = layer.weight.device
            factors[name] = (down.to(device), up.to(device))
        return cls(factors, rank, alpha)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The factors under PEFT's names."""
        named: dict[str, torch.Tensor] = {}
        for name, (down, up) in self.factors.items():
            named[f"{_PREFIX}{name}.lora_A.weight"] = down
            named[f"{_PREFIX}{name}.lora_B.weight"] = up
        return named

    def to(self, dtype: torch.dtype, device: torch.device) -> Adapter:
        moved = {
            name: (down.detach().to(device, dtype), up.detach().to(device, dtype))
            for name, (down, up) in self.factors.items()
        }
        return Adapter(moved, self.rank, self.alpha)

    def save(self, folder: Path, base_model: str) -> None:
        """Write the two PEFT files into `folder`."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors().items()}
        save_file(tensors, folder / WEIGHTS_FILE, {"format": "pt", _ALPHA: repr(float(self.alpha))})
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base_model,
            "r": self.rank,
            _ALPHA: self.alpha,
            "target_modules": sorted({name.rsplit(".", 1)[-1] for name in self.factors}),
            "bias": "none",
            "lora_dropout": 0.0,
        }
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, layers: Mapping[str, nn.Linear]) -> Adapter:
        """Read an adapter for a model that has `layers`.

        Raises MisfitError when a tensor is missing, misshapen or one too many, ValueError when one is not
        finite or the config is not that of the weights, OSError when a file cannot be read.
        """
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        with safe_open(folder / WEIGHTS_FILE, "pt") as file:
            trained_with = (file.metadata() or {}).get(_ALPHA)  # none in an adapter that is not ours
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        rank, alpha = int(config["r"]), float(config[_ALPHA])
        if rank < 1 or not math.isfinite(alpha):
            raise ValueError(f"{folder.name}: rank {rank} and alpha {alpha} are no adapter's")
        if trained_with is not None and float(trained_with) != alpha:
            raise ValueError(f"{folder.name}: its config says alpha {alpha}, its weights {trained_with}")
        factors: Factors = {}
        for name, layer in layers.items():
            down = tensors.pop(f"{_PREFIX}{name}.lora_A.weight", None)
            up = tensors.pop(f"{_PREFIX}{name}.lora_B.weight", None)
            if down is None or up is None:
                raise MisfitError(f"{folder.name}: no factors for layer {name}")
            if down.shape != (rank, layer.in_features) or up.shape != (layer.out_features, rank):
                raise MisfitError(f"{folder.name}: factors of {name} do not fit the model")
            if not (down.is_floating_point() and up.is_floating_point()):
                raise ValueError(f"{folder.name}: factors of {name} are {down.dtype}, {up.dtype}")
            if not (down.isfinite().all() and up.isfinite().all()):
                raise ValueError(f"{folder.name}: factors of {name} are not finite")
            factors[name] = (down, up)
        if tensors:
            raise MisfitError(f"{folder.name}: {len(tensors)} tensors are of layers that are not there")
        return cls(factors, rank, alpha)
