"""The simulated people: what each likes, how each would put it in one sentence, and the words each uses.

`hint` is the wording by which the ceiling is measured: the base model that is told. The words are in
`data/`, in five moods. Knows no question and no HTTP.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

from openclaw_rl.evals.personalise import styles

Mood = Literal["explicit", "implicit", "empty", "cut_off", "pleased"]
"""explicit and implicit are complaints about the style, with and without saying what is wanted."""

MOODS: tuple[Mood, ...] = get_args(Mood)

_OF_THE_DEMO = {"too_long": "explicit", "too_long_implicit": "implicit"}


@dataclass(frozen=True, slots=True)
class Persona:
    name: str
    likes: str
    """For people who read the table."""
    hint: str
    style_fault: Callable[[str], str]
    words: Mapping[str, Sequence[str]]
    """What the person says, by mood."""


def again() -> Sequence[str]:
    """Ways to ask once more without a reason; {question} stands for the question."""
    lines: Sequence[str] = _read("personalise/data/again.toml")["again"]
    return lines


def _read(path: str) -> dict[str, Sequence[str]]:
    return tomllib.loads(files("openclaw_rl.evals").joinpath(path).read_text(encoding="utf-8"))


def _words(path: str) -> dict[str, Sequence[str]]:
    return {_OF_THE_DEMO.get(mood, mood): said for mood, said in _read(path).items()}


PERSONAS: dict[str, Persona] = {
    persona.name: persona
    for persona in (
        Persona(
            "brief",
            "one sentence of at most 35 words",
            "Answer in one short sentence.",
            styles.brief,
            _words("data/brief.toml"),
        ),
        Persona(
            "phone",
            "one short sentence, or two of at most 40 words in all",
            "Answer in one short sentence.",
            styles.phone,
            _words("personalise/data/phone.toml"),
        ),
        Persona(
            "student",
            "at most three plain sentences, nothing that looks machine-made",
            "Answer in two plain sentences.",
            styles.student,
            _words("personalise/data/student.toml"),
        ),
        Persona(
            "grader",
            "exactly three points, numbered 1 to 3, and nothing around them",
            "List three short facts, numbered 1 to 3.",
            styles.grader,
            _words("personalise/data/grader.toml"),
        ),
    )
}
