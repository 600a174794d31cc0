"""The questions: to talk about, and held out for the score, with what an answer to each is made of.

Only questions that the untrained embedded model answers in its own words, long and short; so a method is
measured by the style that it teaches and not by what a small model happens to know. `data/answerable.txt`
names them; how they were found is in docs/experiments.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Literal

QuestionSet = Literal["train", "held_out"]

Terms = Mapping[str, Sequence[str]]
"""By question, beginnings of words of which an answer contains at least one and the question none."""


def every_question(name: QuestionSet) -> Terms:
    """Of one set, answerable or not: those of the demo and those written for this experiment."""
    found: dict[str, Sequence[str]] = {}
    for path in (f"data/answers_{name}.toml", f"personalise/data/answers_{name}.toml"):
        text = files("openclaw_rl.evals").joinpath(path).read_text(encoding="utf-8")
        found |= tomllib.loads(text)["terms"]
    return found


def questions(name: QuestionSet) -> Terms:
    """The answerable ones of one set; no topic of one set occurs in the other."""
    text = files("openclaw_rl.evals").joinpath("personalise/data/answerable.txt").read_text(encoding="utf-8")
    answerable = set(text.splitlines())
    return {question: terms for question, terms in every_question(name).items() if question in answerable}
