"""What a user's reply says of the turn before it, by phrase rules for English and Chinese.

In order: the reply repeats the request, it complains or corrects, it approves, it moves on, or it is
ambiguous. The corrective sentences themselves are the hint. Quoted text, code and attempts to dictate
the verdict are taken out first.
"""

from __future__ import annotations

import re

from openclaw_rl.judge import phrases
from openclaw_rl.judge.finding import Finding

MOST_HINT_SENTENCES = 3
SAME_QUESTION = 0.65
"""Share of common content words (Jaccard) from which a reply counts as the request asked again."""

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^\s*>.*$", re.MULTILINE)
_QUOTE = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」")
_SENTENCE_END = re.compile(r"(?<=[!?。！？；\n])\s*|(?<=\.)\s+")
_CLAUSE_END = re.compile(r"[,，、:：;；—]\s*|\s(?:and|so)\s")
_WORD = re.compile(r"[a-z0-9']+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")
_STOP_WORD_LIST = """
    a an the is are was were be been do does did can could would will should shall may might must have
    has had i you he she it we they me my your our this that these those what which who whom whose when
    where why how of in on at to for from by with about as and or so but if then than please tell there
    s t again just
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
_STOP_CHARACTERS = str.maketrans("", "", "的了是吗呢吧啊到底请问我你一下么哪里怎什")


def read_reply(text: str, request: str) -> Finding:
    """Score a user's reply to the answer of `request`."""
    sentences = _sentences(text)
    corrective = [sentence for sentence in sentences if _corrects(sentence, _approves(sentences))]
    complaint = next((sentence for sentence in sentences if _complains(sentence)), "")
    asked_again = next((s for s in sentences if phrases.REASKED.search(_plain(s))), "")
    if corrective or complaint or asked_again:
        rule = "correction" if corrective else "complaint" if complaint else "asked again"
        hint = _hint(sentences, corrective)
        return Finding(-1, rule, hint or complaint or asked_again, hint)
    if _similar(text, request) >= SAME_QUESTION:
        return Finding(-1, "same question", text)
    if _approves(sentences):
        return Finding(1, "approval", next(s for s in sentences if _approving(s)))
    topic = next((sentence for sentence in sentences if _moves_on(sentence)), "")
    if topic:
        return Finding(1, "moved on", topic)
    return Finding(0, "ambiguous")


def read_edit(text: str, request: str) -> Finding:
    """An edit of the request is a correction; its hint is what corrects among its new sentences."""
    before = set(_sentences(request))
    added = [sentence for sentence in _sentences(text) if sentence not in before]
    hint = _joined([sentence for sentence in added if _corrects(sentence, approved=False)])
    return Finding(-1, "edited request", hint or "", hint)


def _sentences(text: str) -> list[str]:
    for noise in (_FENCE, _QUOTED_LINE, phrases.DICTATED):
        text = noise.sub(" ", text)
    pieces = (piece.strip() for piece in _SENTENCE_END.split(text.replace("’", "'")))
    return [piece for piece in pieces if piece.strip(" .,!?。，！？…*-#\\")]


def _plain(sentence: str) -> str:
    """For matching: lower case, no quoted words, no closing punctuation, no friendly negations."""
    bare = _QUOTE.sub("", sentence).lower().strip(" \t\n*-#•.!。！…")
    return phrases.FRIENDLY_NEGATION.sub("", bare).strip(" ,，")


def _clauses(sentence: str) -> list[str]:
    """A sentence's clauses, and first the sentence as a whole."""
    whole = _plain(sentence)
    parts = [whole]
    for part in phrases.CONTRAST.split(whole):
        parts.append(part)
        parts.extend(_CLAUSE_END.split(part))
    return [part.strip() for part in parts if part.strip()]


def _is_question(plain: str) -> bool:
    return bool(phrases.QUESTION.search(plain)) and not phrases.POLITE_REQUEST.search(plain)


def _complains(sentence: str) -> bool:
    plain = _plain(sentence)
    if _is_question(plain) and not re.search(r"\byou\b|\byour\b|你", plain):
        return False
    return any(phrases.COMPLAINT.search(clause) for clause in _clauses(sentence))


def _corrects(sentence: str, approved: bool) -> bool:
    """Whether a sentence says how the reply should have been. `approved`: the user also approved of it."""
    plain = _plain(sentence)
    if _is_question(plain) or phrases.BARE_REPEAT.match(plain) or phrases.PAUSE.search(plain):
        return False
    clauses = _clauses(sentence)
    if any(phrases.FORM_REQUEST.search(clause) for clause in clauses):
        return True
    if approved and not phrases.CONTRAST.search(plain):
        return False
    return any(phrases.CHANGE_REQUEST.search(clause) for clause in clauses)


def _approves(sentences: list[str]) -> bool:
    return any(_approving(sentence) for sentence in sentences)


def _approving(sentence: str) -> bool:
    bare = sentence.lower().strip(" .!。！")
    if phrases.QUESTION.search(bare):
        return False
    return any(phrases.APPROVAL.search(part) for part in (bare, *_CLAUSE_END.split(bare)))


def _moves_on(sentence: str) -> bool:
    plain = _plain(sentence)
    if phrases.PAUSE.search(plain) or phrases.DOUBT.search(plain) or phrases.ABOUT_REPLY.search(plain):
        return False
    if len(_content(plain)) < 2:
        return False
    return bool(phrases.QUESTION.search(plain) or phrases.OTHER_REQUEST.search(plain))


def _hint(sentences: list[str], corrective: list[str]) -> str | None:
    """The corrective sentences, or beside a bare complaint the requests that are left."""
    return _joined(corrective or [s for s in sentences if _asks_for_something(s)])


def _asks_for_something(sentence: str) -> bool:
    if _is_question(_plain(sentence)) or phrases.BARE_REPEAT.match(_plain(sentence)):
        return False
    return any(phrases.OTHER_REQUEST.search(clause) for clause in _clauses(sentence))


def _joined(sentences: list[str]) -> str | None:
    trimmed = [_trimmed(sentence) for sentence in sentences[:MOST_HINT_SENTENCES]]
    return " ".join(trimmed) or None


def _trimmed(sentence: str) -> str:
    """Without the thanks or the "no" in front: they instruct nobody."""
    parts = phrases.CONTRAST.split(sentence, maxsplit=1)
    if len(parts) == 2 and _corrects(parts[1], approved=False):
        sentence = parts[1]
    return phrases.OPENING.sub("", sentence).strip()


def _similar(left: str, right: str) -> float:
    ours, theirs = _content(left.lower()), _content(right.lower())
    if len(theirs) < 2:
        return 0.0
    return len(ours & theirs) / len(ours | theirs)


def _content(text: str) -> set[str]:
    """Content words with plural and verb endings cut, and for Chinese pairs of characters."""
    words = {word.replace("'s", "") for word in _WORD.findall(text)} - _STOP_WORDS
    found = {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words}
    for run in _CHINESE.findall(text):
        run = run.translate(_STOP_CHARACTERS)
        found.update(run[i : i + 2] for i in range(len(run) - 1))
    return found
