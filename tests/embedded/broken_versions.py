"""Versions as they may lie on a broken disk: what each change does to a good version's folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tiny_model import llama, save_model

from openclaw_rl.policy.embedded.adapter import CONFIG_FILE, WEIGHTS_FILE


def _lose_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    tensors.pop(sorted(tensors)[3])
    save_file(tensors, folder / WEIGHTS_FILE)


def _misshape_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    name = sorted(tensors)[0]
    tensors[name] = tensors[name][:, 1:].contiguous()
    save_file(tensors, folder / WEIGHTS_FILE)


def _add_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    save_file({**tensors, "base_model.model.other.lora_A.weight": torch.zeros(1)}, folder / WEIGHTS_FILE)


def _put_nan(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    tensors[sorted(tensors)[0]][0, 0] = float("nan")
    save_file(tensors, folder / WEIGHTS_FILE)


def _overflow(folder: Path) -> None:
    # Finite factors whose product is not.
    tensors = load_file(folder / WEIGHTS_FILE)
    save_file(
        {name: torch.full_like(tensor, 1e30) for name, tensor in tensors.items()}, folder / WEIGHTS_FILE
    )


def _truncate(folder: Path) -> None:
    whole = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).write_bytes(whole[: len(whole) // 2])


def _lose_the_config(folder: Path) -> None:
    (folder / CONFIG_FILE).unlink()


def _break_the_config(folder: Path) -> None:
    (folder / CONFIG_FILE).write_text("{", encoding="utf-8")


def _change_the_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    (folder / CONFIG_FILE).write_text(json.dumps({**config, **changes}), encoding="utf-8")


def _empty_the_rank(folder: Path) -> None:
    _change_the_config(folder, r=None)


def _put_an_infinite_rank(folder: Path) -> None:
    _change_the_config(folder, r=float("inf"))


def _put_an_alpha_beyond_all_floats(folder: Path) -> None:
    _change_the_config(folder, lora_alpha=10**400)


def _put_an_infinite_alpha(folder: Path) -> None:
    _change_the_config(folder, lora_alpha=float("inf"))


def _put_another_alpha(folder: Path) -> None:
    _change_the_config(folder, lora_alpha=2.5)


def _nest_the_config(folder: Path) -> None:
    (folder / CONFIG_FILE).write_text("[" * 100_000, encoding="utf-8")


def _put_integers(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    save_file({name: tensor.to(torch.int8) for name, tensor in tensors.items()}, folder / WEIGHTS_FILE)


def _put_floats_that_cannot_be_tested(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    save_file(
        {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items()}, folder / WEIGHTS_FILE
    )


def _make_it_an_adapter_of_rank_0(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    empty = {
        name: (tensor[:0] if "lora_A" in name else tensor[:, :0]).contiguous()
        for name, tensor in tensors.items()
    }
    save_file(empty, folder / WEIGHTS_FILE)
    _change_the_config(folder, r=0)


def _make_it_a_truncated_model(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    weights = save_model(folder, llama()) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def _make_it_a_model_of_fewer_tokens(folder: Path) -> None:
    # It loads, and fails in the engine's own test of it.
    (folder / WEIGHTS_FILE).unlink()
    save_model(folder, llama(vocab_size=8))


def _make_it_a_model_of_a_shorter_context(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    save_model(folder, llama(max_position_embeddings=16))


WHOLE_MODELS = (
    _make_it_a_truncated_model,
    _make_it_a_model_of_fewer_tokens,
    _make_it_a_model_of_a_shorter_context,
)
BREAKS = [
    _lose_a_tensor,
    _misshape_a_tensor,
    _add_a_tensor,
    _put_nan,
    _overflow,
    _truncate,
    _lose_the_config,
    _break_the_config,
    _empty_the_rank,
    _put_an_infinite_rank,
    _put_an_alpha_beyond_all_floats,
    _put_an_infinite_alpha,
    _put_another_alpha,
    _nest_the_config,
    _put_integers,
    _put_floats_that_cannot_be_tested,
    _make_it_an_adapter_of_rank_0,
    *WHOLE_MODELS,
    shutil.rmtree,
]
