"""A version's adapter as a server gets it: checked against the model, and linked into a folder of its own.

A server reads an adapter's files again whenever it has put it out of its memory, so they must stay as long
as it is loaded, whatever becomes of the version's own folder. Knows no server.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.model import PolicyVersion
from openclaw_rl.policy.embedded.adapter import CONFIG_FILE, WEIGHTS_FILE, Adapter
from openclaw_rl.policy.embedded.version_files import MODEL_FILE, verified_weights
from openclaw_rl.policy.engine import EngineError

LEAST_FELT = 1e-4
"""Root mean square of the change to a layer's weights from which on log-probs must differ, in bfloat16 too:
weights are some hundredths, and are rounded by their 500th part."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What must be known of the base model to tell whether an adapter is its: nothing that takes memory."""

    layers: dict[str, nn.Linear]
    """The layers that get factors, without weights, by their full names."""
    vocabulary: int

    @classmethod
    def of(cls, folder: Path, targets: tuple[str, ...]) -> Self:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        layers = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets
        }
        return cls(layers, int(model.get_input_embeddings().num_embeddings))


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A checked adapter. `is_felt` says that log-probs must differ from the base's with it."""

    folder: Path
    is_felt: bool

    @classmethod
    def read(cls, home: Path, version: PolicyVersion, shape: ModelShape) -> Self:
        """Raises what `version_files.reading` reads, and EngineError for a version that is a whole model."""
        weights = verified_weights(home, version)
        if weights.name == MODEL_FILE:
            raise EngineError(
                f"version {version.number} is a whole model, and a server is given adapters: "
                f"take the embedded engine"
            )
        adapter = Adapter.load(weights.parent, shape.layers)
        return cls(weights.parent, _largest_change(adapter) > LEAST_FELT)

    def link(self, folder: Path) -> None:
        """Put the two files that a server reads into `folder`, without a copy where the disk allows it."""
        folder.mkdir(parents=True)
        for name in (WEIGHTS_FILE, CONFIG_FILE):
            try:
                os.link(self.folder / name, folder / name)
            except OSError:
                shutil.copyfile(self.folder / name, folder / name)


def no_change(shape: ModelShape) -> Adapter:
    """An adapter under which the model is the base model."""
    factors = {
        name: (torch.zeros(1, layer.in_features), torch.zeros(layer.out_features, 1))
        for name, layer in shape.layers.items()
    }
    return Adapter(factors, rank=1, alpha=1.0)


def _largest_change(adapter: Adapter) -> float:
    """The largest root mean square of up @ down times the scale, over the layers."""
    changes = [
        # |up @ down|^2, without the product: of rank x rank matrices alone.
        adapter.scale
        * (((up.T @ up) * (down @ down.T)).sum().clamp(min=0) / (len(up) * down.shape[1])).sqrt()
        for down, up in adapter.factors.values()
    ]
    return max((change.item() for change in changes), default=0.0)
