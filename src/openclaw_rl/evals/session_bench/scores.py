"""Precision and recall of what was observed: main or side, session joins, and next states. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from openclaw_rl.evals.session_bench.runner import Observed


@dataclass(frozen=True, slots=True)
class Score:
    """`right` of `said` are right, and `wanted` would be; of nothing said or wanted, the share is 1."""

    right: int
    said: int
    wanted: int

    @property
    def precision(self) -> float:
        return self.right / self.said if self.said else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted if self.wanted else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "precision": round(self.precision, 4),
            "recall": round(self.recall, 4),
            "right": self.right,
            "said": self.said,
            "wanted": self.wanted,
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that the gateway got wrong."""

    what: str
    conversation: str
    step: str
    wanted: str
    said: str


def main_lines(observed: Iterable[Observed]) -> Score:
    """Main or side, where main is what is looked for."""
    pairs = Counter((one.label.kind, one.kind) for one in observed)
    right = pairs["main", "main"]
    return Score(right, right + pairs["side", "main"], right + pairs["main", "side"])


def joins(observed: Iterable[Observed]) -> Score:
    """Pairs of main requests in one session, over all conversations."""
    main = [one for one in observed if one.label.kind == "main"]
    wanted = [(one.conversation.name, one.label.session) for one in main]
    said = [one.session for one in main]
    return Score(_pairs(zip(wanted, said, strict=True)), _pairs(said), _pairs(wanted))


def _pairs(groups: Iterable[Hashable]) -> int:
    return sum(comb(count, 2) for count in Counter(groups).values())


def pairing(observed: Sequence[Observed]) -> Score:
    """Replies with a next state: the right reply, and the right words."""
    wanted = _next_states(observed)
    right = sum(one.next is not None and one.next == wanted.get(_place(one)) for one in observed)
    return Score(right, sum(one.next is not None for one in observed), len(wanted))


def _next_states(observed: Iterable[Observed]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The next state that each reply should have."""
    return {
        (one.conversation.name, one.label.answers): tuple(text.strip() for text in one.label.next)
        for one in observed
        if one.label.answers is not None
    }


def _place(one: Observed) -> tuple[str, str]:
    return one.conversation.name, one.step.id


def failures(observed: Sequence[Observed]) -> list[Failure]:
    """Everything that is wrong, request by request."""
    wanted = _next_states(observed)
    found: list[Failure] = []
    for one in observed:
        name, step = _place(one)
        if one.kind != one.label.kind:
            found.append(Failure("kind", name, step, one.label.kind, f"{one.kind}: {one.kind_reason}"))
        if one.next != wanted.get(_place(one)):
            expected = wanted.get(_place(one))
            found.append(Failure("next state", name, step, _written(expected), _written(one.next)))
    return found + _wrong_joins(observed)


def _wrong_joins(observed: Iterable[Observed]) -> list[Failure]:
    """Sessions that were split or run together, each told at the first request where it shows."""
    found: list[Failure] = []
    place_of: dict[str, str] = {}
    session_of: dict[str, str] = {}
    for one in observed:
        if one.label.kind != "main":
            continue
        wanted = f"{one.conversation.name}: {one.label.session}"
        before, there = session_of.get(wanted), place_of.get(one.session)
        if before not in (None, one.session):
            found.append(
                Failure("session", *_place(one), f"with the others of {wanted!r}", "another session")
            )
        if there not in (None, wanted):
            found.append(Failure("session", *_place(one), "a session of its own", f"that of {there!r}"))
        session_of[wanted] = one.session
        place_of.setdefault(one.session, wanted)
    return found


def _written(words: tuple[str, ...] | None) -> str:
    return "none" if words is None else " | ".join(words)


def to_json(observed: Sequence[Observed]) -> dict[str, Any]:
    """The three scores; the top-level precision and recall are those of pairing."""
    paired = pairing(observed)
    return {
        "conversations": len({one.conversation.name for one in observed}),
        "requests": len(observed),
        "precision": round(paired.precision, 4),
        "recall": round(paired.recall, 4),
        "pairing": paired.to_json(),
        "main_side": main_lines(observed).to_json(),
        "joins": joins(observed).to_json(),
    }


def by_kind(observed: Iterable[Observed]) -> dict[str, list[Observed]]:
    """What was observed of each kind of conversation, in the order in which kinds first occur."""
    kinds: dict[str, list[Observed]] = {}
    for one in observed:
        kinds.setdefault(one.conversation.kind, []).append(one)
    return kinds
