"""A simulated user who wants one short sentence that really answers, and says so in many ways.

Reads questions, phrases and what answers are made of from `data/`. Reacts to a reply as a person would:
complains about length, about emptiness and about a reply that was cut off, sometimes without saying what
is wanted, and says thanks. Knows no server.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from openclaw_rl.evals.scoring import style_fault, useful_fault

Mood = Literal["pleased", "too_long", "too_long_implicit", "empty", "cut_off"]

IMPLICIT_SHARE = 0.2
"""Of the complaints about length that give no reason and no instruction."""


@dataclass(frozen=True, slots=True)
class Reaction:
    mood: Mood
    words: str


QuestionSet = Literal["train", "held_out"]


def questions(name: QuestionSet) -> list[str]:
    """One of the two question sets; no topic of one occurs in the other."""
    text = files("openclaw_rl.evals").joinpath(f"data/questions_{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def phrases() -> dict[str, Sequence[str]]:
    """What the user says in each mood."""
    text = files("openclaw_rl.evals").joinpath("data/brief.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def answer_terms(name: QuestionSet) -> dict[str, Sequence[str]]:
    """By question, word beginnings of which an answer contains at least one.

    Of every training question, and of the first half of the held-out ones: those that are evaluated.
    """
    text = files("openclaw_rl.evals").joinpath(f"data/answers_{name}.toml").read_text(encoding="utf-8")
    terms: dict[str, Sequence[str]] = tomllib.loads(text)["terms"]
    return terms


class BriefUser:
    """Asks training questions in an order of its own and reacts to the replies."""

    def __init__(self, seed: int) -> None:
        self._terms = answer_terms("train")
        self._random = random.Random(seed)
        self._phrases = phrases()
        self._questions: list[str] = []

    def next_question(self) -> str:
        if not self._questions:
            self._questions = questions("train")
            self._random.shuffle(self._questions)
        return self._questions.pop()

    def react(self, question: str, reply: str, *, finished: bool) -> Reaction:
        """What the user says next to a reply that came whole (`finished`) or was cut off."""
        mood = self._mood(question, reply, finished=finished)
        return Reaction(mood, self._random.choice(self._phrases[mood]))

    def _mood(self, question: str, reply: str, *, finished: bool) -> Mood:
        fault = style_fault(reply)
        if not finished:
            return self._random.choice(("cut_off", "too_long"))
        if fault and fault != "empty":
            implicit = self._random.random() < IMPLICIT_SHARE
            return "too_long_implicit" if implicit else "too_long"
        return "empty" if fault or useful_fault(reply, self._terms[question], finished=True) else "pleased"
