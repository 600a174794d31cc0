"""A simulated user: asks, reads, and says what a person of that taste would say, until pleased or tired.

Deterministic for a seed and the replies it gets. Knows no server.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from openclaw_rl.evals.personalise.personas import Mood, Persona, again
from openclaw_rl.evals.personalise.questions import Terms
from openclaw_rl.evals.scoring import useful_fault

IMPLICIT_SHARE = 0.2
"""Of the complaints about style that do not say what is wanted."""

AGAIN_SHARE = 0.3
"""Of those, the ones that only ask again."""


@dataclass(frozen=True, slots=True)
class Reaction:
    mood: Mood
    words: str


class User:
    """One person with one taste and a supply of questions, in an order of its own."""

    def __init__(self, persona: Persona, terms: Terms, seed: int) -> None:
        self._persona = persona
        self._terms = terms
        self._random = random.Random(seed)
        self._again = again()
        self._questions: list[str] = []

    def next_question(self) -> str:
        if not self._questions:
            self._questions = list(self._terms)
            self._random.shuffle(self._questions)
        return self._questions.pop()

    def react(self, question: str, reply: str, *, finished: bool) -> Reaction:
        """What the user says next to a reply that came whole (`finished`) or was cut off."""
        mood = self._mood(question, reply, finished=finished)
        if mood == "implicit" and self._random.random() < AGAIN_SHARE:
            return Reaction(mood, self._random.choice(self._again).format(question=question))
        return Reaction(mood, self._random.choice(self._persona.words[mood]))

    def _mood(self, question: str, reply: str, *, finished: bool) -> Mood:
        fault = self._persona.style_fault(reply)
        if not finished and self._random.random() < 0.5:
            return "cut_off"
        if not finished or (fault and fault != "empty"):
            return "implicit" if self._random.random() < IMPLICIT_SHARE else "explicit"
        return "empty" if fault or useful_fault(reply, self._terms[question], finished=True) else "pleased"
