"""Does a reply please the user who wants one short sentence? Half style, half usefulness.

A reply counts only if it has the style and still answers the question, which is told from words that an
answer to that question contains. Deterministic, and the same for the talking user and for the score. Knows
no HTTP and no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_WORDS = 25
"""Of a short sentence."""

_WORD = re.compile(r"[a-z0-9']+")
SENTENCE_END = re.compile(r"[.!?][\"')\]]?(?=\s|$)")


def style_fault(reply: str, most_words: int = MOST_WORDS) -> str:
    """Why `reply` is not one short sentence: "", "empty", "several lines", "several sentences" or "long"."""
    text = reply.strip()
    if not text:
        return "empty"
    if "\n" in text:
        return "several lines"
    if len(SENTENCE_END.findall(text)) > 1:
        return "several sentences"
    return "long" if len(text.split()) > most_words else ""


def useful_fault(reply: str, terms: Sequence[str], *, finished: bool) -> str:
    """Why `reply` does not answer its question: "", "cut off" or "no answer in it".

    `terms` are beginnings of words, of which an answer contains at least one and the question none.
    """
    if not finished:
        return "cut off"
    words = _WORD.findall(reply.lower())
    return "" if any(word.startswith(term) for word in words for term in terms) else "no answer in it"
