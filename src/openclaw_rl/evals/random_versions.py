"""Policy versions that nobody learned: random adapters, each its own, known again by their number.

For measurements of serving: they cost what learned ones cost, and give log-probs that tell them apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn import checkpoint
from openclaw_rl.model import PolicyVersion, Update, VersionState
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.version_files import sha256_of, weights_file
from openclaw_rl.store import Store

SIZE = 0.3
"""Of what an adapter adds to a layer's outputs, for inputs of size 1 (root mean square, both)."""


class RandomVersions:
    """Adapters for one model. The same number gives the same adapter, in any process."""

    def __init__(self, model_folder: Path, settings: LearnSettings) -> None:
        self._layers = _layers(model_folder, settings.lora_targets)
        self._rank = settings.lora_rank
        self._alpha = settings.lora_alpha

    def adapter(self, number: int) -> Adapter:
        """Version `number`'s, float32."""
        generator = torch.Generator().manual_seed(number)
        factors = {}
        for name, layer in self._layers.items():
            down = torch.randn(self._rank, layer.in_features, generator=generator)
            up = torch.randn(layer.out_features, self._rank, generator=generator)
            spread = SIZE * self._rank / (self._alpha * math.sqrt(self._rank))
            factors[name] = (down / math.sqrt(layer.in_features), up * spread)
        return Adapter(factors, self._rank, self._alpha)

    def write(self, number: int, versions: Path, model: str) -> Path:
        """Put version `number` on disk as the learner does, without what training goes on from."""
        with checkpoint.writing(versions, number) as aside:
            self.adapter(number).save(aside, model)
        return checkpoint.folder_of(versions, number)


def record(store: Store, folder: Path) -> PolicyVersion:
    """Tell the store of a version on disk, so that the server takes it as one of the learner's."""
    update_id, number = store.learning.next_numbers()
    if folder.name != checkpoint.folder_of(folder.parent, number).name:
        raise ValueError(f"{folder} is not the next version, {number}")
    now = time.time()
    version = PolicyVersion(
        number,
        number - 1,
        VersionState.CANDIDATE,
        str(folder.relative_to(folder.parents[1])),
        sha256_of(weights_file(folder)),
        now,
        update_id=update_id,
    )
    store.learning.record_update(Update(update_id, number, "random", (), {}, now, now), version)
    return version


def _layers(model_folder: Path, targets: tuple[str, ...]) -> Mapping[str, nn.Linear]:
    """The model's layers that get an adapter, without their weights."""
    config = AutoConfig.from_pretrained(model_folder, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets
    }
