"""What a contender is asked to do and what is noted of it: the nouns of this measurement.

Imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts that are answered at the same time, each by `tokens` new tokens."""

    prompts: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One job as it went. Seconds are counted from when its requests were made."""

    seconds: float
    """Until the last token of all."""
    tokens: int
    """New ones, of all replies."""
    first_token_seconds: tuple[float, ...] = ()
    """Of each reply; empty where replies come whole."""
    longest_gap_seconds: float = 0.0
    """Between two tokens of one reply."""

    @classmethod
    def of(cls, started: float, arrivals: Sequence[Sequence[float]], tokens: int) -> Pass:
        """`arrivals` has, for each reply, when its tokens came, by the clock that `started` was read from."""
        return cls(
            seconds=max(times[-1] for times in arrivals) - started,
            tokens=tokens,
            first_token_seconds=tuple(times[0] - started for times in arrivals),
            longest_gap_seconds=max(
                (later - earlier for times in arrivals for earlier, later in pairwise(times)), default=0.0
            ),
        )

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Pass:
        return cls(**{**facts, "first_token_seconds": tuple(facts["first_token_seconds"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


class Contender(Protocol):
    """Someone who makes replies."""

    def measure(self, job: Job) -> Pass: ...
