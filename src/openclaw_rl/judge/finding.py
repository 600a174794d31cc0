"""What a rule found in a next state: the score, the rule that fired, and the words it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.model import Score


@dataclass(frozen=True, slots=True)
class Finding:
    score: Score
    rule: str
    """Short and fixed, such as "correction" or "tool error"."""
    evidence: str = ""
    """The sentence or line that made the rule fire, where there is one."""
    hint: str | None = None
    """What the turn should have done, where the next state says so."""
