"""A policy version on disk: weights, optimiser state and a manifest, in a folder of its own.

A version is written aside, flushed and renamed, so a folder with a version's name is always whole. Only
safetensors and JSON are read or written, never pickles. Knows no store.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from openclaw_rl.config import ConfigError
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.policy.embedded.adapter import WEIGHTS_FILE, Adapter, MisfitError
from openclaw_rl.policy.embedded.version_files import MODEL_FILE, sha256_of

OPTIMISER_FILE = "optimiser.safetensors"
MANIFEST_FILE = "manifest.json"

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, SafetensorError)


class CheckpointError(OSError):
    """A version's folder that is damaged or cannot be read; `str(error)` says which and why."""


def save(trainer: Trainer, model_folder: Path, model: str, versions: Path, number: int) -> tuple[Path, str]:
    """Write version `number` under `versions`; returns its folder and the SHA-256 of its weights."""
    with writing(versions, number) as aside:
        if trainer.adapter is not None:
            trainer.adapter.save(aside, model)
            weights = aside / WEIGHTS_FILE
        else:
            weights = aside / MODEL_FILE
            _save_full(trainer, model_folder, aside)
        save_file(_optimiser_tensors(trainer), aside / OPTIMISER_FILE)
        digest = sha256_of(weights)
        manifest = {
            "version": number,
            "model": model,
            "weights": weights.name,
            "sha256": digest,
            "reward_baseline": trainer.baseline,
        }
        (aside / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    return folder_of(versions, number), digest


@contextmanager
def writing(versions: Path, number: int) -> Iterator[Path]:
    """A folder to fill aside; after the block it is on disk and is `folder_of` the version."""
    final = folder_of(versions, number)
    aside = versions / f".{number:06d}.writing"
    for leftover in (aside, final):  # a killed learner's, never recorded in the store
        if leftover.exists():
            shutil.rmtree(leftover)
    aside.mkdir(parents=True)
    yield aside
    for written in aside.iterdir():
        _flush(written)
    _flush(aside)
    aside.rename(final)
    _flush(versions)


def folder_of(versions: Path, number: int) -> Path:
    """Where version `number` lies."""
    return versions / f"{number:06d}"


def restore(trainer: Trainer, folder: Path, model: str) -> None:
    """Put a version's weights and optimiser state into the trainer.

    Raises ConfigError when it is of another model or was trained with other settings, CheckpointError when
    it cannot be read.
    """
    manifest = _whole_manifest(folder)
    if manifest["model"] != model:
        raise ConfigError(f"{folder} is a version of {manifest['model']}, not of {model}")
    if manifest["weights"] != (MODEL_FILE if trainer.adapter is None else WEIGHTS_FILE):
        raise _other_settings(folder, f"its weights are {manifest['weights']}")
    saved = _saved_parameters(trainer, folder)
    try:
        state = load_file(folder / OPTIMISER_FILE)
        baseline = float(manifest.get("reward_baseline", 0.0))
    except _UNREADABLE as error:
        raise CheckpointError(f"{folder} cannot be resumed from: {error}") from error
    for name, parameter in trainer.parameters.items():
        if name not in saved or saved[name].shape != parameter.shape:
            raise _other_settings(folder, f"{name} does not fit")
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            parameter.copy_(saved[name])
    trainer.baseline = baseline
    _restore_optimiser(trainer, state)


def reset(trainer: Trainer, initial: dict[str, torch.Tensor]) -> None:
    """Back to version 0: the initial weights and an optimiser without memory."""
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            parameter.copy_(initial[name])
    trainer.baseline = 0.0
    trainer.optimiser.state.clear()


def _whole_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a version whose weights are those that were written. Raises CheckpointError."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        is_whole = sha256_of(folder / manifest["weights"]) == manifest["sha256"] and "model" in manifest
    except _UNREADABLE as error:
        raise CheckpointError(f"{folder} cannot be resumed from: {error}") from error
    if not is_whole:
        raise CheckpointError(f"{folder}: the weights do not match their hash")
    return manifest


def _saved_parameters(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    try:
        if trainer.adapter is None:
            whole: dict[str, torch.Tensor] = load_file(folder / MODEL_FILE)
            return whole
        adapter = Adapter.load(folder, trainer.network.adapted)
    except MisfitError as error:
        raise _other_settings(folder, str(error)) from error
    except _UNREADABLE as error:
        raise CheckpointError(f"{folder} cannot be resumed from: {error}") from error
    if adapter.scale != trainer.adapter.scale:
        # The same factors under another scale are another policy.
        raise _other_settings(folder, f"rank {adapter.rank}, alpha {adapter.alpha:g}")
    return adapter.tensors()


def _other_settings(folder: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{folder} was trained with other settings ({what}); "
        f"set those of learn.* back, or begin in another --data-dir"
    )


def _save_full(trainer: Trainer, model_folder: Path, target: Path) -> None:
    """A whole model folder: our weights beside the base's own config and tokenizer files."""
    for file in model_folder.iterdir():
        if file.suffix in (".json", ".jinja") and "index" not in file.name:
            shutil.copy(file, target / file.name)
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in trainer.parameters.items()}
    save_file(tensors, target / MODEL_FILE, metadata={"format": "pt"})


def _optimiser_tensors(trainer: Trainer) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.parameters.items():
        for key, value in trainer.optimiser.state.get(parameter, {}).items():
            tensors[f"{name}|{key}"] = value.detach().cpu().contiguous()
    return tensors


def _restore_optimiser(trainer: Trainer, tensors: dict[str, torch.Tensor]) -> None:
    trainer.optimiser.state.clear()
    for name, parameter in trainer.parameters.items():
        own = {key.split("|", 1)[1]: value for key, value in tensors.items() if key.split("|", 1)[0] == name}
        if own:
            trainer.optimiser.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in own.items()
            }


def _flush(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
