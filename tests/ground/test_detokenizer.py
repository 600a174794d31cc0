"""From tokens to text: pieces join to the text wherever tokens are cut, and stop strings never show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import IM_END, byte_ids, byte_level, id_of, metaspace
from tokenizers import Tokenizer

from openclaw_rl.policy.detokenizer import Detokenizer

DIVERSE = st.one_of(st.text(max_size=40), st.text("the dog 天气很好你🙂👩‍👧é\n\t", max_size=40))
# Few letters, so that stop strings are met, overlap and are nearly met.
NARROW = "ab你"


def pieces_of(detokenizer: Detokenizer, token_ids: Sequence[int]) -> list[str]:
    return [*(detokenizer.feed(token_id) for token_id in token_ids), detokenizer.finish()]


def joined(token_ids: Sequence[int], stop: Sequence[str] = (), tokenizer: Tokenizer | None = None) -> str:
    return "".join(pieces_of(Detokenizer(tokenizer or byte_level(), stop), token_ids))


@st.composite
def tokenised(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, list[int]]:
    """A text with tokens that spell it, cut at random: some parts by BPE, some byte by byte."""
    text, token_ids, start = draw(texts), list[int](), 0
    while start < len(text):
        end = draw(st.integers(start + 1, len(text)))
        part = text[start:end]
        token_ids += byte_ids(part) if draw(st.booleans()) else byte_level().encode(part).ids
        start = end
    return text, token_ids


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before the stop string that is complete first, reading letter by letter."""
    for end in range(1, len(text) + 1):
        complete = [len(one) for one in stop if text[:end].endswith(one)]
        if complete:
            return text[: end - max(complete)]
    return text


@settings(deadline=None)
@given(DIVERSE)
def test_the_pieces_of_a_tokenised_text_join_to_the_text(text: str) -> None:
    token_ids = byte_level().encode(text).ids
    assert joined(token_ids) == byte_level().decode(token_ids) == text


@settings(deadline=None)
@given(tokenised(DIVERSE))
def test_the_pieces_join_to_the_text_wherever_the_tokens_are_cut(case: tuple[str, list[int]]) -> None:
    text, token_ids = case
    assert joined(token_ids) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, byte_level().get_vocab_size() - 1), max_size=30))
def test_any_sampled_tokens_even_broken_characters_join_to_what_they_decode_to(token_ids: list[int]) -> None:
    assert joined(token_ids) == byte_level().decode(token_ids, skip_special_tokens=True)


@settings(deadline=None)
@given(st.text("The quick brown fox", max_size=40))
def test_spaces_survive_a_decoder_that_drops_the_first(text: str) -> None:
    token_ids = metaspace().encode(text).ids
    assert joined(token_ids, tokenizer=metaspace()) == metaspace().decode(token_ids)


@settings(deadline=None, max_examples=300)
@given(
    tokenised(st.text(NARROW, max_size=16)),
    st.lists(st.text(NARROW, min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_with_stop_strings_the_pieces_join_to_the_text_before_the_first_of_them(
    case: tuple[str, list[int]], stop: list[str]
) -> None:
    text, token_ids = case
    expected = cut(text, stop)
    detokenizer = Detokenizer(byte_level(), stop)
    shown = ""
    for piece in pieces_of(detokenizer, token_ids):
        shown += piece
        assert expected.startswith(shown)
    assert shown == expected
    assert not any(one in shown for one in stop)
    assert detokenizer.stopped == (expected != text)


@pytest.mark.parametrize("parts", [["abc"], ["ab", "c"], ["a", "bc"], ["a", "b", "c"]])
def test_the_stop_string_that_is_complete_first_counts_however_the_tokens_are_cut(parts: list[str]) -> None:
    tokenizer = byte_level().from_str(byte_level().to_str())
    tokenizer.add_tokens(["abc", "ab", "bc"])
    token_ids = [id_of(part, tokenizer) for part in parts]
    assert joined(token_ids, ["abc", "b"], tokenizer) == "a"
    assert joined(token_ids, ["abc", "c"], tokenizer) == ""


def test_text_is_shown_at_once_when_nothing_can_change_it() -> None:
    token_ids = byte_level().encode("The quick brown fox jumps over the lazy dog.").ids
    pieces = pieces_of(Detokenizer(byte_level(), ["###"]), token_ids)
    assert all(pieces[:-1])
    assert pieces[-1] == ""


def test_an_unfinished_character_is_held_until_it_is_whole() -> None:
    first, *rest = byte_ids("你好")
    detokenizer = Detokenizer(byte_level())
    assert detokenizer.feed(first) == ""
    assert [detokenizer.feed(token_id) for token_id in rest] == ["", "你", "", "", "好"]


def test_a_character_left_unfinished_is_shown_as_broken_at_the_end() -> None:
    assert joined(byte_ids("好")[:2]) == "\ufffd"


def test_what_might_begin_a_stop_string_is_held_and_shown_when_it_does_not() -> None:
    detokenizer = Detokenizer(byte_level(), ["\n\nUser:"])
    assert [detokenizer.feed(token_id) for token_id in byte_ids("a\n\nUs")] == ["a", "", "", "", ""]
    assert detokenizer.feed(byte_ids("e")[0]) == ""
    assert detokenizer.feed(byte_ids("d")[0]) == "\n\nUsed"
    assert [detokenizer.feed(token_id) for token_id in byte_ids("\n\nU")] == ["", "", ""]
    assert detokenizer.finish() == "\n\nU"
    assert not detokenizer.stopped


def test_nothing_is_shown_after_a_stop_string() -> None:
    detokenizer = Detokenizer(byte_level(), ["STOP"])
    shown = "".join(detokenizer.feed(token_id) for token_id in byte_ids("one STOP"))
    assert (shown, detokenizer.stopped) == ("one ", True)
    assert pieces_of(detokenizer, byte_ids(" two")) == [""] * 5


def test_special_tokens_are_not_text() -> None:
    end = id_of(IM_END)
    hello = byte_level().encode("Hello").ids
    assert joined([end, *hello, end]) == "Hello"


def test_an_empty_stop_string_stops_nothing() -> None:
    assert joined(byte_ids("text"), [""]) == "text"
