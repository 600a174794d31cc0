"""Models other than the embedded one: equal to transformers' own forward pass, or clearly refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engine_runs import (
    CPU,
    GREEDY,
    TARGETS,
    PlainModel,
    ask,
    ask_together,
    load_network,
    prompt,
    running_engine,
)
from tiny_model import llama, save_model
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.attention import UnsupportedModelError
from openclaw_rl.policy.embedded.network import Network

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

SUPPORTED: dict[str, PretrainedConfig] = {
    "llama": llama(num_key_value_heads=4, tie_word_embeddings=False),
    "mistral, sliding window": MistralConfig(**SIZES, sliding_window=8),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2, window in some layers": Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "qwen3": Qwen3Config(**SIZES),
    "gemma3, local and global layers": Gemma3TextConfig(
        **SIZES,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
}


@pytest.fixture(params=SUPPORTED.values(), ids=SUPPORTED.keys())
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", request.param)


def test_packed_sequences_give_what_each_gives_alone_in_transformers(folder: Path) -> None:
    network, plain = load_network(folder), PlainModel(folder)
    sequences = [prompt(length) for length in (40, 1, 7, 23)]
    packed = network.packed_logits(sequences, torch.arange(71))
    alone = torch.cat([plain.logits(sequence) for sequence in sequences])
    assert (packed.log_softmax(-1) - alone.log_softmax(-1)).abs().max() < 1e-3


def test_the_engine_gives_what_transformers_gives(folder: Path, tmp_path: Path) -> None:
    plain = PlainModel(folder)
    sampling = Sampling(max_tokens=20, seed=3)
    with running_engine(load_network(folder), tmp_path, prefill_chunk=16) as engine:
        assert ask(engine, prompt(50), GREEDY).token_ids == plain.greedy(prompt(50), GREEDY.max_tokens)
        requests = [(prompt(length), sampling) for length in (3, 60, 20)]
        for (prompt_ids, _), reply in zip(requests, ask_together(engine, requests), strict=True):
            expected = plain.logprobs(prompt_ids, reply.token_ids, 1.0)
            assert reply.logprobs == pytest.approx(expected, abs=1e-3)


def test_gradients_are_those_of_the_fused_kernel(model_folder: Path) -> None:
    # Short sequences are trained by two matrix products, longer ones by PyTorch's kernel.
    network = Network.load(model_folder, dtype=torch.float32, device=CPU, adapter_targets=(), trainable=True)
    weight = network.model.get_submodule("model.layers.0.self_attn.q_proj").weight
    assert isinstance(weight, torch.Tensor)
    plain = PlainModel(model_folder)
    for sequences in ([prompt(30), prompt(9)], [prompt(300)]):
        keep = torch.arange(sum(map(len, sequences)))
        loss = network.packed_logits(sequences, keep).log_softmax(-1)[:, 5].sum()
        (ours,) = torch.autograd.grad(loss, [weight])
        plain_weight = plain.model.get_submodule("model.layers.0.self_attn.q_proj").weight
        rows = [plain.model(torch.tensor([sequence])).logits[0] for sequence in sequences]
        (theirs,) = torch.autograd.grad(torch.cat(rows).log_softmax(-1)[:, 5].sum(), [plain_weight])
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


def test_attention_with_soft_caps_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_model(tmp_path, Gemma2Config(**SIZES, sliding_window=8))
    with pytest.raises(UnsupportedModelError, match="soft caps"):
        load_network(folder)


def test_a_model_that_carries_state_outside_attention_is_refused(tmp_path: Path) -> None:
    folder = save_model(
        tmp_path,
        MambaConfig(vocab_size=300, hidden_size=64, state_size=8, num_hidden_layers=2, initializer_range=0.5),
    )
    with pytest.raises(UnsupportedModelError, match="mixes sequences"):
        Network.load(folder, dtype=torch.float32, device=CPU, adapter_targets=("in_proj",))


def test_a_model_whose_packed_sequences_mix_is_refused(model_folder: Path) -> None:
    network = load_network(model_folder)
    layer = network.model.get_submodule("model.layers.1")
    # As a convolution or a recurrence would: each token also sees the one before it in the row.
    layer.register_forward_hook(lambda _module, _inputs, output: output + 0.5 * output.roll(1, dims=1))
    with pytest.raises(UnsupportedModelError, match="mixes sequences"):
        network.check_packing()


def test_targets_that_no_layer_has_are_refused_by_name(model_folder: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"c_attn.*learn\.lora_targets"):
        Network.load(model_folder, dtype=torch.float32, device=CPU, adapter_targets=("c_attn",))


def test_every_target_layer_is_found_by_its_full_name(network: Network) -> None:
    assert len(network.adapted) == 3 * len(TARGETS)
    assert network.adapted["model.layers.2.mlp.up_proj"].out_features == 128
