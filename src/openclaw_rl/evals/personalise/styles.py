"""What each persona likes to read, as deterministic rules. Each says why a reply has not that style, or "".

A rule looks at form alone; whether the reply answers its question is told by `scoring.useful_fault`. Knows
no persona's words and no HTTP.
"""

from __future__ import annotations

import re

from openclaw_rl.evals.scoring import SENTENCE_END, style_fault

MOST_WORDS_BRIEF = 35
MOST_WORDS_PHONE = 40
MOST_SENTENCES_PHONE = 2
MOST_WORDS_STUDENT = 60
MOST_SENTENCES_STUDENT = 3
POINTS = 3

_MARKUP = re.compile(r"\*\*|__|`|^\s*(?:[-*•]|\d+[.)]|#+)\s|\|", re.MULTILINE)
_MACHINE = re.compile(
    r"\bas an ai\b|\bas a language model\b|^(?:certainly|of course|sure)\b|\bi(?:'m| am) here to\b"
    r"|\b(?:how|what) can i\b",
    re.IGNORECASE,
)
_POINT = re.compile(r"^\s*(\d+)[.)]\s+(\S.*)$")


def brief(reply: str) -> str:
    """One sentence on one line, of at most 35 words."""
    return style_fault(reply, MOST_WORDS_BRIEF)


def phone(reply: str) -> str:
    """One or two sentences on one line, of at most 40 words in all."""
    text = reply.strip()
    if not text:
        return "empty"
    if "\n" in text:
        return "several lines"
    return _too_long(text, MOST_SENTENCES_PHONE, MOST_WORDS_PHONE)


def student(reply: str) -> str:
    """At most three plain sentences in one paragraph, without markup and without a machine's phrases."""
    text = reply.strip()
    if not text:
        return "empty"
    if _MARKUP.search(text):
        return "formatted"
    if "\n" in text:
        return "several paragraphs"
    if _MACHINE.search(text):
        return "sounds like a machine"
    return _too_long(text, MOST_SENTENCES_STUDENT, MOST_WORDS_STUDENT)


def grader(reply: str) -> str:
    """A list of exactly three points, numbered 1 to 3, and nothing around it."""
    text = reply.strip()
    if not text:
        return "empty"
    points = [_POINT.match(line) for line in text.splitlines() if line.strip()]
    numbers = [int(point[1]) for point in points if point]
    if not numbers:
        return "no points"
    if None in points:
        return "words around the points"
    return "" if numbers == list(range(1, POINTS + 1)) else "not three points"


def _too_long(text: str, most_sentences: int, most_words: int) -> str:
    is_long = len(SENTENCE_END.findall(text)) > most_sentences or len(text.split()) > most_words
    return "long" if is_long else ""
