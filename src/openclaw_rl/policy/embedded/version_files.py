"""A policy version's folder as its readers see it: which file holds the weights, and whether they are right.

An adapter's weights are beside its config, a fully trained model's beside the model's. Says what is the
version's own fault and what is not. Knows no tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from openclaw_rl.model import PolicyVersion
from openclaw_rl.policy.embedded.adapter import WEIGHTS_FILE
from openclaw_rl.policy.engine import BadVersionError, EngineError

MODEL_FILE = "model.safetensors"

_AT_FAULT = (
    FileNotFoundError,
    ValueError,
    ArithmeticError,
    KeyError,
    TypeError,
    RecursionError,
    NotImplementedError,
    SafetensorError,
)
"""What is raised for files that will be no better the next time."""


def weights_file(folder: Path) -> Path:
    """The adapter's if there is one, else the whole model's."""
    adapter = folder / WEIGHTS_FILE
    return adapter if adapter.exists() else folder / MODEL_FILE


def sha256_of(path: Path) -> str:
    """Of a file's bytes, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified_weights(home: Path, version: PolicyVersion) -> Path:
    """The version's weights file, unchanged since it was recorded; `home` is the data folder.

    Raises OSError and ValueError, to be read by `reading`.
    """
    if version.path is None:
        raise ValueError("it has no files")
    folder = home / version.path
    weights = weights_file(folder)
    if not folder.parent.exists():
        # Not this version's fault: a disk that is not there, or a data folder that was half moved.
        raise NotADirectoryError(f"{folder.parent} is missing")
    if not weights.exists():
        raise FileNotFoundError(f"{weights} is missing")
    if version.sha256 is not None and sha256_of(weights) != version.sha256:
        raise ValueError("its weights do not match their hash")
    return weights


@contextmanager
def reading(version: PolicyVersion) -> Iterator[None]:
    """What goes wrong while a version is read, as the engine contract tells it.

    Raises BadVersionError for what is wrong with its files, EngineError for what may pass.
    """
    try:
        yield
    except _AT_FAULT as error:
        raise BadVersionError(f"version {version.number} cannot be loaded: {error}") from error
    except OSError as error:  # too many open files
        raise EngineError(f"version {version.number} cannot be loaded now: {error}") from error
    except EngineError:
        raise
    except RuntimeError as error:  # no memory
        raise EngineError(f"version {version.number} cannot be loaded now: {error}") from error
