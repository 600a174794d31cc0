"""Tokenizers small enough to train inside a test: byte-level as Qwen's, and one with metaspaces."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

IM_START, IM_END = "<|im_start|>", "<|im_end|>"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "You are a helpful assistant. Please answer in one short sentence.",
    "天气很好，我们去公园吧。你好，世界！今天天气怎么样？",
    "Emojis 🙂🙂🙃 and 👩‍👩‍👧 families, naïve café, Привет мир",
] * 4


@cache
def byte_level() -> Tokenizer:
    """Byte-level BPE: every text is encodable, and a character may be split over several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def id_of(token: str, tokenizer: Tokenizer | None = None) -> int:
    found = (tokenizer or byte_level()).token_to_id(token)
    assert found is not None
    return int(found)


def byte_ids(text: str) -> list[int]:
    """One token of `byte_level` for each UTF-8 byte of the text."""
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [id_of(letter) for piece, _ in spelled for letter in piece]


@cache
def metaspace() -> Tokenizer:
    """A decoder that drops the space before the first token it is given, as SentencePiece models do."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer
