"""Our own forward pass computes what transformers' modules compute, or is not used."""

from __future__ import annotations

import logging
from collections.abc import Callable
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
    load_network,
    prompt,
    random_adapter,
    running_engine,
)
from test_network import SIZES
from tiny_model import llama, save_model
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    GraniteConfig,
    MistralConfig,
    PhiConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.architecture import UnknownPartError, decoder_of
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.projection import ROWS_STEP, Projection, evened

LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_SCALING = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

COMPUTED: dict[str, PretrainedConfig] = {
    "llama, tied": llama(),
    "llama, untied": llama(tie_word_embeddings=False),
    "llama, all biases": llama(attention_bias=True, mlp_bias=True),
    "llama, one key head": llama(num_key_value_heads=1),
    "llama, llama3 positions": llama(rope_parameters=LLAMA3_SCALING),
    "llama, linear positions": llama(rope_parameters=LINEAR_SCALING),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral, window": MistralConfig(**SIZES, sliding_window=8),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2, tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2, window in some layers": Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "qwen3": Qwen3Config(**SIZES),
    "qwen3, wide heads": Qwen3Config(**{**SIZES, "head_dim": 32}),
}

LEFT_TO_TRANSFORMERS: dict[str, tuple[PretrainedConfig, tuple[str, ...]]] = {
    "gpt-neox": (
        GPTNeoXConfig(
            vocab_size=300,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            initializer_range=0.25,
        ),
        ("query_key_value", "dense_h_to_4h"),
    ),
    "phi, partial rotary": (PhiConfig(**{**SIZES, "head_dim": 16}, partial_rotary_factor=0.5), ("q_proj",)),
    "granite, multipliers": (GraniteConfig(**SIZES, residual_multiplier=0.5), TARGETS),
    "llama, another activation": (llama(hidden_act="gelu"), TARGETS),
}


@pytest.fixture(params=COMPUTED.values(), ids=COMPUTED.keys())
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with biases and norms that are not the zeros and ones they begin with."""
    save_model(tmp_path, request.param)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(tmp_path)
    return tmp_path


def test_it_computes_the_log_probs_of_transformers(folder: Path) -> None:
    network, plain = load_network(folder), PlainModel(folder)
    assert network.decoder is not None
    sequences = [prompt(length) for length in (90, 1, 23)]
    packed = network.packed_logits(sequences, torch.arange(114)).log_softmax(-1)
    alone = torch.cat([plain.logits(sequence) for sequence in sequences]).log_softmax(-1)
    assert (packed - alone).abs().max() < 1e-4


def test_it_decodes_the_tokens_of_transformers_with_an_adapter(folder: Path, tmp_path: Path) -> None:
    network = load_network(folder)
    adapter = random_adapter(network, seed=5, size=0.05)
    plain = PlainModel(folder, adapter)
    weights = network.prepared(adapter)
    sequence = prompt(40)
    ours = network.packed_logits([sequence], torch.arange(40), weights).log_softmax(-1)
    assert (ours - plain.logits(sequence).log_softmax(-1)).abs().max() < 1e-4
    with running_engine(network, tmp_path) as engine:
        expected = PlainModel(folder).greedy(sequence, GREEDY.max_tokens)
        assert ask(engine, sequence, GREEDY).token_ids == expected


@pytest.mark.parametrize("targets", [TARGETS, ("v_proj", "q_proj"), ("up_proj",)])
def test_factors_get_the_gradients_that_transformers_gives(folder: Path, targets: tuple[str, ...]) -> None:
    network = Network.load(folder, dtype=torch.float32, device=CPU, adapter_targets=targets)
    assert network.decoder is not None
    ours = _gradients(network)
    network.decoder = None
    theirs = _gradients(network)
    for name, gradient in theirs.items():
        assert torch.allclose(ours[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max())), name


def _gradients(network: Network) -> dict[str, torch.Tensor]:
    """Of every factor, for a loss over two packed sequences, one of them long."""
    adapter = random_adapter(network, seed=3, size=0.05)
    tensors = adapter.tensors()
    for tensor in tensors.values():
        tensor.requires_grad_(True)
    logits = network.packed_logits([prompt(30), prompt(280)], torch.arange(20, 310), adapter)
    loss = logits.float().log_softmax(-1)[:, 7].mean()
    return dict(zip(tensors, torch.autograd.grad(loss, list(tensors.values())), strict=True))


def test_every_weight_gets_the_gradient_that_transformers_gives(folder: Path) -> None:
    def gradients(network: Network) -> list[torch.Tensor]:
        loss = network.packed_logits([prompt(30), prompt(9)], torch.arange(39)).log_softmax(-1)[:, 7].sum()
        return list(torch.autograd.grad(loss, list(network.model.parameters())))

    network = Network.load(folder, dtype=torch.float32, device=CPU, adapter_targets=(), trainable=True)
    assert network.decoder is not None
    ours = gradients(network)
    network.decoder = None
    for one, other in zip(ours, gradients(network), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_the_weights_are_kept_once(model_folder: Path) -> None:
    network = load_network(model_folder)
    attention = network.model.get_submodule("model.layers.0.self_attn")
    storages = {
        attention.get_submodule(name).get_parameter("base.weight").untyped_storage().data_ptr()
        for name in ("q_proj", "k_proj", "v_proj")
    }
    assert len(storages) == 1


def test_in_bfloat16_it_is_as_near_to_float32_as_transformers_is(model_folder: Path) -> None:
    half = Network.load(model_folder, dtype=torch.bfloat16, device=CPU, adapter_targets=TARGETS)
    assert half.decoder is not None
    sequences, keep = [prompt(100)], torch.arange(100)
    exact = PlainModel(model_folder).logits(sequences[0]).log_softmax(-1)

    def distance() -> float:
        return float((half.packed_logits(sequences, keep).float().log_softmax(-1) - exact).pow(2).mean())

    ours = distance()
    half.decoder = None
    assert ours < 1.5 * distance()


def test_prepacked_weights_give_the_same_bits(folder: Path) -> None:
    network = Network.load(folder, dtype=torch.bfloat16, device=CPU, adapter_targets=TARGETS)
    sequences = [[prompt(rows)] for rows in (1, 7, 96)]
    with torch.no_grad():
        plain = [network.packed_logits(one, torch.arange(len(one[0]))) for one in sequences]
        network.prepack()
        prepacked = [network.packed_logits(one, torch.arange(len(one[0]))) for one in sequences]
    assert all(one.equal(other) for one, other in zip(plain, prepacked, strict=True))


def test_products_have_few_numbers_of_rows_and_the_rows_that_were_asked_for() -> None:
    layer = torch.nn.Linear(64, 32, dtype=torch.bfloat16).requires_grad_(False)
    projection = Projection({"layer": layer})
    projection.prepack()
    with torch.no_grad():
        for rows in (1, ROWS_STEP, ROWS_STEP + 1, 100):
            inputs = torch.randn(rows, 64, dtype=torch.bfloat16)
            assert torch.allclose(projection(inputs, None), layer(inputs), atol=0.05)
    numbers = {len(evened(torch.empty(rows, 1))) for rows in range(1, 513)}
    assert numbers == {*range(1, ROWS_STEP), *range(ROWS_STEP, 513, ROWS_STEP)}


def test_few_rows_with_an_adapter_are_as_many_rows_in_bfloat16(model_folder: Path) -> None:
    # A few rows multiply the factors in float32; they are the numbers that more rows use in bfloat16.
    network = Network.load(model_folder, dtype=torch.bfloat16, device=CPU, adapter_targets=TARGETS)
    adapter = network.prepared(random_adapter(network, seed=2, size=0.03))
    with torch.inference_mode():
        few = network.packed_logits([prompt(30)], torch.arange(30), adapter)
        many = network.packed_logits([prompt(30), prompt(90)], torch.arange(30), adapter)
    assert (few.float().log_softmax(-1) - many.float().log_softmax(-1)).abs().mean() < 0.1


@pytest.mark.parametrize(
    ("config", "targets"), LEFT_TO_TRANSFORMERS.values(), ids=LEFT_TO_TRANSFORMERS.keys()
)
def test_other_models_run_through_transformers(
    config: PretrainedConfig, targets: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="openclaw_rl")
    folder = save_model(tmp_path / "model", config)
    network = Network.load(folder, dtype=torch.float32, device=CPU, adapter_targets=targets)
    assert network.decoder is None
    assert [record.message for record in caplog.records if "transformers" in record.message]
    adapter = random_adapter(network, seed=4, size=0.05)
    plain = PlainModel(folder, adapter)
    ours = network.packed_logits([prompt(30)], torch.arange(30), network.prepared(adapter)).log_softmax(-1)
    assert (ours - plain.logits(prompt(30)).log_softmax(-1)).abs().max() < 1e-4
    with running_engine(network, tmp_path) as engine:
        reply = ask(engine, prompt(20), GREEDY)
    assert reply.token_ids == PlainModel(folder).greedy(prompt(20), GREEDY.max_tokens)


def _set(path: str, value: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, value)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("model.layers.1.residual_multiplier", 0.5),
        _set("model.layers.1.self_attn.softcap", 30.0),
        _set("model.layers.0.self_attn.scaling", 0.5),
        _set("model.layers.0.mlp.act_fn", torch.nn.Tanh()),
        _set("model.layers.0.self_attn.gate_proj", torch.nn.Linear(64, 64)),
        _set("model.layers.0.self_attn.v_proj", torch.nn.Linear(64, 64, bias=False)),
        _set("model.layers.2.input_layernorm", torch.nn.LayerNorm(64)),
        _set("model.embed_norm", torch.nn.LayerNorm(64)),
    ],
)
def test_one_unknown_part_is_enough_to_leave_a_model_alone(
    model_folder: Path, change: Callable[[Any], None]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    change(model)
    weight = model.model.layers[0].self_attn.q_proj.weight
    before = weight.data_ptr()
    with pytest.raises(UnknownPartError):
        decoder_of(model)
    assert weight.data_ptr() == before


def test_a_decoder_that_disagrees_is_given_up(model_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = load_network(model_folder)
    layer = network.model.get_submodule("model.layers.1")
    layer.register_forward_hook(lambda _module, _inputs, output: 1.01 * output)
    network.check_decoder()
    assert network.decoder is None
    assert "log-probs differ" in caplog.text
    adapter = Adapter.fresh(network.adapted, rank=4, alpha=8, seed=3)
    assert network.packed_logits([prompt(5)], torch.arange(5), network.prepared(adapter)).isfinite().all()


def test_a_head_that_is_adapted_runs_through_transformers(model_folder: Path) -> None:
    network = Network.load(
        model_folder, dtype=torch.float32, device=CPU, adapter_targets=("q_proj", "lm_head")
    )
    assert network.decoder is None
