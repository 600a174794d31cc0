"""Events are the same wherever the network cut their bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.gateway.upstream.events import EventReader

SAID = (
    "data: one\n\n: comment\n\nevent: x\ndata: two\ndata:lines\nid: 7\n\ndata:\n\ndata: caf\u00e9 \u6f22\n\n"
)
EVENTS = ["one", "two\nlines", "", "caf\u00e9 \u6f22"]


def read(chunks: list[bytes]) -> list[str]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


@given(st.lists(st.integers(0, 200)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_cuts_and_line_ends_make_no_difference(cuts: list[int], line_end: str) -> None:
    whole = SAID.replace("\n", line_end).encode()
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    assert read([whole[a:b] for a, b in pairwise(places)]) == EVENTS


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    marked = b"\xef\xbb\xbfdata: one\n\n\xef\xbb\xbfdata: two\n\ndata: three\n\n"
    assert read([marked]) == read([marked[:1], marked[1:]]) == ["one", "three"]


def test_only_what_waits_for_its_end_is_held() -> None:
    reader = EventReader()
    for _ in range(9):
        reader.feed(b": comment\n" + b"data: 1234\n\n")
    assert reader.held == 0
    for _ in range(9):
        reader.feed(b"x" * 100)
        reader.feed(b"\ndata: " + b"x" * 100)
    assert 1700 <= reader.held <= 1800, "all but the first line, which is no data"
    reader.feed(b"\n\ndata: 1")
    assert reader.held == len(b"data: 1")


@pytest.mark.parametrize("end", ["", "\r", "\n"])
def test_the_last_event_needs_no_empty_line(end: str) -> None:
    assert read([f"data: one\n\ndata: two{end}".encode()]) == ["one", "two"]


def test_an_event_is_given_as_soon_as_it_has_ended() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a") == []
    assert reader.feed(b"b\n") == []
    assert reader.feed(b"\ndata: c") == ["ab"]
