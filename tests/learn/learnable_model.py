"""A random Llama of some ten thousand weights with a byte-level tokenizer, and turns sampled from it.

The folder is an ordinary model folder, so it is loaded by the code that loads real models, and turns are
drawn by the engine's own scheduler, so their log-probs are what a served turn's are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from openclaw_rl.config import LearnSettings
from openclaw_rl.model import Message, Sampling, Turn, TurnKind, TurnState
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import Dice
from openclaw_rl.policy.embedded.scheduler import Running, Scheduler, Weights
from openclaw_rl.policy.engine import SampledToken
from openclaw_rl.store import new_id

MODEL = "tiny"
START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ALL_LAYERS = LearnSettings().lora_targets


def write_model(folder: Path, *, tied: bool = False, seed: int = 0) -> Path:
    """Write a model folder. Weights are large enough for prompts to matter to what is sampled."""
    folder.mkdir(parents=True)
    tokenizer = _byte_tokenizer()
    end_id = tokenizer.token_to_id(END)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=end_id,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=end_id, pad_token_id=end_id)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return folder


def _byte_tokenizer() -> Tokenizer:
    """One token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: place for place, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([START, END])
    return tokenizer


def load_network(
    folder: Path, *, trainable: bool = False, dtype: torch.dtype = torch.float32, adapted: bool = True
) -> Network:
    return Network.load(
        folder,
        dtype=dtype,
        device=torch.device("cpu"),
        adapter_targets=ALL_LAYERS if adapted else (),
        trainable=trainable,
    )


def sample_turn(
    network: Network,
    template: ChatTemplate,
    text: str = "Hello there",
    *,
    messages: tuple[Message, ...] | None = None,
    adapter: Adapter | None = None,
    temperature: float = 1.0,
    max_tokens: int = 10,
    seed: int = 1,
    **changes: Any,
) -> Turn:
    """A turn drawn token by token from the model, with the log-probs that the engine gives."""
    asked = messages or ({"role": "user", "content": text},)
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
    prompt_ids = template.prompt_ids(asked)
    drawn = _draw(network, template, prompt_ids, sampling, adapter)
    turn: dict[str, Any] = {
        "id": new_id("turn"),
        "session_id": "s1",
        "kind": TurnKind.MAIN,
        "state": TurnState.WAITING_NEXT_STATE,
        "model": MODEL,
        "policy_version": 0,
        "messages": asked,
        "reply": {"role": "assistant", "content": template.decode([token.token_id for token in drawn])},
        "prompt_ids": prompt_ids,
        "response_ids": tuple(token.token_id for token in drawn),
        "logprobs": tuple(token.logprob for token in drawn),
        "sampling": sampling,
        "finish_reason": drawn[-1].finish,
        "created_at": 1.0,
        "finished_at": 2.0,
        "conversation_hash": "hash",
    }
    return Turn(**{**turn, **changes})


def _draw(
    network: Network,
    template: ChatTemplate,
    prompt_ids: tuple[int, ...],
    sampling: Sampling,
    adapter: Adapter | None,
) -> list[SampledToken]:
    drawn: list[SampledToken] = []
    scheduler = Scheduler(template.stop_ids, max_concurrent=1, prefill_chunk=64, cache_tokens=0)
    scheduler.waiting.append(
        Running(
            weights=Weights(0, network, adapter),
            prompt_length=len(prompt_ids),
            token_ids=list(prompt_ids),
            sampling=sampling,
            budget=sampling.max_tokens,
            deliver=drawn.append,
            dice=Dice(sampling.seed),
        )
    )
    while scheduler.has_work:
        scheduler.step()
    return drawn
