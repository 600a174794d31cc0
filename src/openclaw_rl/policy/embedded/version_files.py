"""A policy version's folder as both its readers see it: which file holds the weights, and their hash.

An adapter's weights are beside its config, a fully trained model's beside the model's. Knows no tensors.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from openclaw_rl.policy.embedded.adapter import WEIGHTS_FILE

MODEL_FILE = "model.safetensors"


def weights_file(folder: Path) -> Path:
    """The adapter's if there is one, else the whole model's."""
    adapter = folder / WEIGHTS_FILE
    return adapter if adapter.exists() else folder / MODEL_FILE


def sha256_of(path: Path) -> str:
    """Of a file's bytes, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
