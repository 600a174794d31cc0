"""Which models `decoder` computes: those of four known classes whose every part it knows.

Each module is looked at for anything more than these parts (a further layer, a multiplier, another
activation, partial rotary embeddings); one such thing, and the model runs through transformers instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from openclaw_rl.policy.embedded.decoder import Block, Decoder, Norm
from openclaw_rl.policy.embedded.projection import Projection

MODELS = {
    f"transformers.models.{family}.modeling_{family}.{name}ForCausalLM"
    for family, name in (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3"))
}

_MODEL = {"embed_tokens", "layers", "norm", "rotary_emb"}
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}

_ATTRIBUTES = {
    "training",
    "config",
    "hidden_size",
    "intermediate_size",
    "layer_idx",
    "layer_type",
    "head_dim",
    "num_key_value_groups",
    "scaling",
    "sliding_window",
    "attention_dropout",  # only while training with dropout, which we never do
    "is_causal",
    "variance_epsilon",
}
"""What a layer, its attention, its feed-forward network and their norms may hold besides modules."""


class UnknownPartError(ValueError):
    """The model has a part that `decoder` does not compute."""


def decoder_of(model: nn.Module) -> Decoder:
    """A decoder that computes with this model's weights, of which it makes no copy.

    Frozen weights that are read together become views of one tensor, so the model itself still works.
    Raises UnknownPartError, with the model as it was, when there is a part that is not known.
    """
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if kind not in MODELS:
        raise UnknownPartError(f"{type(model).__name__} is not built like Llama")
    _check(model)
    return _read(model)


def _check(model: Any) -> None:
    config, inner = model.config, model.model
    _consists_of(model, {"model", "lm_head"})
    _consists_of(inner, _MODEL)
    _require(config.hidden_act in ("silu", "swish"), f"activation {config.hidden_act}")
    _require(type(inner.embed_tokens) is nn.Embedding, "embeddings that are not plain")
    _require(type(model.lm_head) is nn.Linear, "a head that is not plain")
    _require(len(inner.layers) == config.num_hidden_layers > 0, "layers that are not used")
    first = inner.layers[0].self_attn
    _require(first.head_dim % 2 == 0, "heads of odd width")
    _require(_rotary_width(inner.rotary_emb) == first.head_dim, "partial rotary embeddings")
    _check_norm(inner.norm)
    head_norms = _HEAD_NORMS if hasattr(first, "q_norm") else set()
    for layer in inner.layers:
        attention, feed_forward = layer.self_attn, layer.mlp
        _consists_of(layer, _LAYER)
        _consists_of(attention, _PROJECTIONS | head_norms)
        _consists_of(feed_forward, _FEED_FORWARD)
        for module in (layer, attention, feed_forward):
            _has_only_known_attributes(module)
        _require(type(feed_forward.act_fn).__name__ in ("SiLU", "SiLUActivation"), "another activation")
        for name in _PROJECTIONS:
            _require(type(getattr(attention, name)) is nn.Linear, f"{name} that is not plain")
        for name in _FEED_FORWARD - {"act_fn"}:
            _require(type(getattr(feed_forward, name)) is nn.Linear, f"{name} that is not plain")
        for norm in [layer.input_layernorm, layer.post_attention_layernorm]:
            _check_norm(norm)
        for name in head_norms:
            _check_norm(getattr(attention, name))
        widths = {attention.q_proj.out_features, attention.o_proj.in_features}
        _require(widths == {config.num_attention_heads * first.head_dim}, "heads of different widths")
        widths = {attention.k_proj.out_features, attention.v_proj.out_features}
        _require(widths == {config.num_key_value_heads * first.head_dim}, "values wider than keys")
        same = (attention.head_dim, attention.scaling) == (first.head_dim, first.scaling)
        _require(same and attention.is_causal, "layers that attend differently")
        biases = [getattr(attention, name).bias is None for name in ("q_proj", "k_proj", "v_proj")]
        biases_above = [getattr(feed_forward, name).bias is None for name in ("gate_proj", "up_proj")]
        _require(len(set(biases)) == len(set(biases_above)) == 1, "biases on some of the joined layers")


def _read(model: Any) -> Decoder:
    config, inner = model.config, model.model
    attention = inner.layers[0].self_attn
    return Decoder(
        embedding=inner.embed_tokens,
        rotary=inner.rotary_emb,
        blocks=[_block(f"model.layers.{place}", layer, config) for place, layer in enumerate(inner.layers)],
        norm=_norm(inner.norm),
        head=Projection({"lm_head": model.lm_head}),
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=attention.head_dim,
        scale=attention.scaling,
    )


def _block(name: str, layer: Any, config: Any) -> Block:
    attention = layer.self_attn

    def joined(*names: str) -> Projection:
        return Projection({f"{name}.{part}": layer.get_submodule(part) for part in names})

    # Mistral's window is in its configuration, Qwen's on the layers that have one; Llama has none.
    own = config if config.model_type == "mistral" else attention
    return Block(
        attention_norm=_norm(layer.input_layernorm),
        query_key_value=joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        query_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        key_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        output=joined("self_attn.o_proj"),
        feed_forward_norm=_norm(layer.post_attention_layernorm),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"),
        down=joined("mlp.down_proj"),
        window=getattr(own, "sliding_window", None),
    )


def _norm(module: Any) -> Norm:
    return Norm.of(module.weight, float(module.variance_epsilon))


def _check_norm(module: nn.Module) -> None:
    _require(type(module).__name__.endswith("RMSNorm"), f"norm {type(module).__name__}")
    _require(set(dict(module.named_parameters())) == {"weight"}, "a norm with more than a weight")
    _has_only_known_attributes(module)


@torch.no_grad()
def _rotary_width(rotary: nn.Module) -> int:
    cosine, _ = rotary(torch.zeros(1), torch.zeros(1, 1, dtype=torch.int64))
    return int(cosine.shape[-1])


def _consists_of(module: nn.Module, parts: set[str]) -> None:
    found = set(dict(module.named_children()))
    _require(found == parts, f"{type(module).__name__} of {', '.join(sorted(found ^ parts))}")


def _has_only_known_attributes(module: nn.Module) -> None:
    own = {name for name in vars(module) if not name.startswith("_")}
    _require(own <= _ATTRIBUTES, f"{type(module).__name__} with {', '.join(sorted(own - _ATTRIBUTES))}")


def _require(known: bool, otherwise: str) -> None:
    if not known:
        raise UnknownPartError(otherwise)
