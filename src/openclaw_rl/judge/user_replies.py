"""What a user's reply says of the turn before it, from the acts of its sentences.

In order: a sentence that asks for a change, complains or asks again makes the reply negative; otherwise one
that approves or goes on to the next thing makes it positive; otherwise it tells nothing. The sentences that
ask for a change are the hint. Quoted text, code and attempts to dictate the verdict are taken out first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.judge import phrases
from openclaw_rl.judge.act_features import content
from openclaw_rl.judge.dialogue_acts import Act, probabilities
from openclaw_rl.judge.finding import Finding

MOST_HINT_SENTENCES = 3
LONGEST_REPLY = 4000
"""Characters of a reply that are read, from its start: a person's verdict is not behind a pasted log."""
LONGEST_PIECE = 400
"""Characters that patterns see at once: their time grows with a power of the length."""
SAME_QUESTION = 0.65
"""Share of common content words (Jaccard) from which a reply counts as the request asked again."""
SURE = 0.5
"""What a complaint needs to outweigh a sentence that is as sure to be positive."""
CLEAR_APPROVAL = 0.9
"""An approval from which the next sentence's "add X" is the next step, if that is likely enough."""

_NEGATIVE: tuple[Act, ...] = ("complain", "instruct", "ask_again")
_POSITIVE: tuple[Act, ...] = ("approve", "task")
_RULES = {"instruct": "correction", "complain": "complaint", "ask_again": "asked again"}

# With the line that leads up to it, such as "the page says:".
_FENCE = re.compile(r"(?:[^\n]*[:：]\s*\n\s*)?```.*?(?:```|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[!?。！？；\n])\s*|(?<=\.)\s+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a reply with how probable each act is."""

    text: str
    acts: dict[Act, float]

    @property
    def sign(self) -> int:
        return max((-1, 1, 0), key=self.weight)

    @property
    def act(self) -> Act:
        """The most probable act among those of its sign."""
        acts = {-1: _NEGATIVE, 1: _POSITIVE, 0: ("follow_up", "neutral")}[self.sign]
        return max(acts, key=lambda act: self.acts[act])

    def weight(self, sign: int) -> float:
        acts = {-1: _NEGATIVE, 1: _POSITIVE, 0: ("follow_up", "neutral")}[sign]
        return sum(self.acts[act] for act in acts)


def read_reply(text: str, request: str, reply: str = "") -> Finding:
    """Score what a user says to `reply`, the answer to `request`."""
    text = _without_noise(text[:LONGEST_REPLY])
    sentences = [Sentence(said, probabilities(said, request, reply)) for said in _split(text)]
    most_positive = max((sentence.weight(1) for sentence in sentences), default=0.0)
    negative = [
        sentence
        for sentence in sentences
        if sentence.sign == -1
        and (sentence.weight(-1) >= SURE or most_positive < SURE)
        and not _next_step(sentence, sentences)
    ]
    if negative:
        hint = _hint(sentences)
        worst = max(negative, key=lambda sentence: (sentence.act == "instruct", sentence.weight(-1)))
        return Finding(-1, _RULES[worst.act], hint or worst.text, hint)
    if _asks_the_same(text, request):
        return Finding(-1, "same question", text.strip())
    positive = [sentence for sentence in sentences if sentence.sign == 1]
    if positive:
        best = max(positive, key=lambda sentence: (sentence.act == "approve", sentence.weight(1)))
        return Finding(1, "approval" if best.act == "approve" else "moved on", best.text)
    return Finding(0, "ambiguous")


def read_edit(text: str, request: str) -> Finding:
    """An edit of the request is a correction; its hint is what instructs among its new sentences."""
    before = set(_split(_without_noise(request)))
    added = [sentence for sentence in _split(_without_noise(text)) if sentence not in before]
    # With nothing before it, one new sentence is a request of its own.
    kept = any(sentence in before for sentence in _split(_without_noise(text)))
    hint = _joined(added) if kept else None
    return Finding(-1, "edited request", hint or "", hint)


def _without_noise(text: str) -> str:
    for noise in (_FENCE, _QUOTED_LINE):
        text = noise.sub(" ", text[:LONGEST_REPLY])
    return "".join(phrases.DICTATED.sub(" ", piece) for piece in _pieces(text)).replace("’", "'")


def _pieces(text: str) -> list[str]:
    """The text cut where a sentence ends, into pieces short enough for patterns that look both ways."""
    pieces = []
    while len(text) > LONGEST_PIECE:
        ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, LONGEST_PIECE)]
        cut = ends[-1] if ends else LONGEST_PIECE
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


def _split(text: str) -> list[str]:
    pieces = (piece.strip() for piece in _SENTENCE_END.split(text))
    return [piece for piece in pieces if piece.strip(" .,:;!?。，：；！？…*-#\\()[]")] or (
        [text.strip()] if re.fullmatch(r"\s*[.?!…？。！]+\s*", text) else []
    )


def _next_step(sentence: Sentence, sentences: list[Sentence]) -> bool:
    """After a plain approval, "add a test" is the next step, where it is not clearly a correction."""
    if sentence.act != "instruct" or sentence.weight(1) < 1 - CLEAR_APPROVAL:
        return False
    earlier = sentences[: sentences.index(sentence)]
    approved = any(other.acts["approve"] >= CLEAR_APPROVAL for other in earlier)
    return approved and not phrases.CONTRAST.search(sentence.text)


def _asks_the_same(text: str, request: str) -> bool:
    ours, theirs = content(text), content(request)
    if len(theirs) < 2:
        return False
    return len(ours & theirs) / len(ours | theirs) >= SAME_QUESTION


def _hint(sentences: list[Sentence]) -> str | None:
    """The sentences that say how the reply should have been; beside a complaint also what it asks for."""
    instructing = [one.text for one in sentences if one.acts["instruct"] >= SURE]
    if not instructing:
        instructing = [one.text for one in sentences if one.sign == -1 and one.act == "instruct"]
    if not instructing:
        instructing = [
            one.text
            for one in sentences
            if one.acts["instruct"] + one.acts["task"] > max(0.5, one.acts["complain"])
        ]
    return _joined(
        [text for text in instructing if not phrases.BARE_REPEAT.match(text.lower().strip(" .!。！"))]
    )


def _joined(sentences: list[str]) -> str | None:
    return " ".join(_trimmed(sentence) for sentence in sentences[:MOST_HINT_SENTENCES]) or None


def _trimmed(sentence: str) -> str:
    """Without the thanks or the "no" in front: they instruct nobody."""
    parts = phrases.CONTRAST.split(sentence, maxsplit=1)
    if len(parts) == 2 and parts[1].strip():
        before, after = (probabilities(part) for part in parts)
        if before["approve"] > before["instruct"] and after["instruct"] > before["instruct"]:
            sentence = parts[1]
    return phrases.OPENING.sub("", sentence).strip()
