"""One finished run as a small JSON file: what was measured, how, and where it comes from.

The table and the report are made from these files alone. Knows no server.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """Held-out first replies after some updates.

    `pleases` is a character a question, in the order of the questions: 1 pleases, s wrong style, u useless,
    b both.
    """

    updates: int
    pleases: str
    turns: int
    """The user's, up to here."""
    seconds: float
    hinted_log_prob: float
    """Mean log-prob per token of the replies under the frozen base that sees the hint."""
    drift: float
    """Mean KL in nats per token to the base, on unrelated prompts."""
    words: float
    """Mean number of a reply."""
    examples: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        return self.pleases.count("1") / len(self.pleases)

    @property
    def style(self) -> float:
        return 1 - (self.pleases.count("s") + self.pleases.count("b")) / len(self.pleases)

    @property
    def useful(self) -> float:
        return 1 - (self.pleases.count("u") + self.pleases.count("b")) / len(self.pleases)


@dataclass(frozen=True, slots=True)
class RunFile:
    """One persona, one method, one seed."""

    persona: str
    method: str
    seed: int
    measurements: tuple[Measurement, ...]
    first_replies: str = ""
    sessions: int | None = None
    """Until three first replies in a row pleased; None when 72 were not enough, or nobody talked."""
    turns: int = 0
    seconds: float = 0.0
    moods: dict[str, int] = field(default_factory=dict)
    judged: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the user's mood: how often the judge said +1, 0, -1, and how often it found a hint."""
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def at(self, updates: int) -> Measurement | None:
        return next((one for one in self.measurements if one.updates == updates), None)

    def save(self, folder: Path) -> Path:
        """Write it whole or not at all; say where."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name_of(self.persona, self.method, self.seed)
        aside = path.with_suffix(".writing")
        aside.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        aside.rename(path)
        return path

    @classmethod
    def load(cls, path: Path) -> RunFile:
        saved = json.loads(path.read_text(encoding="utf-8"))
        measurements = tuple(
            Measurement(**{**one, "examples": tuple(one["examples"])}) for one in saved.pop("measurements")
        )
        return cls(measurements=measurements, **saved)


def name_of(persona: str, method: str, seed: int) -> str:
    return f"{persona}-{method}-seed{seed}.json"


def load_all(folder: Path) -> list[RunFile]:
    """Every finished run in `folder`, by name."""
    return [RunFile.load(path) for path in sorted(folder.glob("*-seed*.json"))]
