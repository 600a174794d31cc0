"""A tiny real tokenizer, one token for each byte, with a ChatML template."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from openclaw_rl.policy.chat_template import ChatTemplate

START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_template(template: str = CHATML, special_tokens: tuple[str, ...] = ()) -> ChatTemplate:
    """`special_tokens` are known to the tokenizer besides ChatML's two."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([START, END, *special_tokens])
    end_id = tokenizer.token_to_id(END)
    assert end_id is not None  # noqa: S101 - it was added two lines above
    return ChatTemplate(tokenizer, template, {"eos_token": END}, [end_id])
