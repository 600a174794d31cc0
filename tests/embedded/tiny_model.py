"""A model folder as the Hugging Face hub has them, small enough to make in a test: random weights.

The weights are large enough that its predictions are sharp and depend on every token before.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig

CONTEXT = 512
IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHATML = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_CORPUS = ["You are a helpful assistant. What is the capital of France? Please answer in one sentence."] * 2


def make_tiny_model(folder: Path, config: PretrainedConfig | None = None, context: int = CONTEXT) -> Path:
    """Write a whole model folder; without `config` it is a Llama of three layers and `context` tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    stop_id = tokenizer.token_to_id(IM_END)
    config = config or llama(
        vocab_size=tokenizer.get_vocab_size(), eos_token_id=stop_id, max_position_embeddings=context
    )
    save_model(folder, config)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "model_max_length": context,
        },
    )
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    _write_json(folder / "generation_config.json", {"eos_token_id": stop_id, "pad_token_id": 0})
    return folder


def llama(**changes: object) -> LlamaConfig:
    settings: dict[str, object] = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.25,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return LlamaConfig(**{**settings, **changes})


def save_model(folder: Path, config: PretrainedConfig) -> Path:
    """Random float32 weights for a configuration, as safetensors, with its config.json."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


def _tokenizer() -> Tokenizer:
    """Byte-level BPE whose first tokens are the special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[END_OF_TEXT, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
