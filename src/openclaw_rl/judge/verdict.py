"""From raw votes to a verdict: the score, the hint, and whether anyone answered at all.

Pure functions. Three outcomes of a vote are kept apart: it was read, it came but could not be read
(`unread`), or it never came (`unanswered`). Knows no judge and no prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from openclaw_rl.model import Score, Vote, hints_of

Question = Literal["evaluative", "directive"]

SCORES: tuple[Score, ...] = (-1, 0, 1)
_NO_ANSWER = "no answer: "
_UNREAD = "unread: "


def unanswered(question: Question, reason: str) -> Vote:
    """A vote that never came: the judge could not be reached or refused."""
    return Vote(question, None, error=_NO_ANSWER + reason)


def unread(question: Question, raw: str, reason: str) -> Vote:
    """A vote that came and holds no verdict. It is final: asking again would only pick the answers."""
    return Vote(question, None, raw=raw, error=_UNREAD + reason)


def no_answer_reason(votes: Sequence[Vote]) -> str | None:
    """Why no vote came at all, or None when at least one did."""
    reasons = [vote.error for vote in votes if vote.error and vote.error.startswith(_NO_ANSWER)]
    if not reasons or len(reasons) < len(votes):
        return None
    return reasons[0].removeprefix(_NO_ANSWER)


def score_of(votes: Iterable[Vote]) -> Score | None:
    """The plurality of the valid evaluative votes; 0 on a tie for the top, None without a valid vote.

    The vote rule of arXiv 2603.10165, except that there no valid vote means 0.
    """
    counts = Counter(
        score for vote in votes if vote.question == "evaluative" for score in SCORES if vote.score == score
    )
    if not counts:
        return None
    most = max(counts.values())
    top = [score for score, count in counts.items() if count == most]
    return top[0] if len(top) == 1 else 0


def hint_of(votes: Iterable[Vote]) -> str | None:
    """The longest accepted hint (arXiv 2603.10165 v1), or None.

    Length is in UTF-8 bytes. For English that is the paper's count of characters; a Chinese character
    says about as much as three Latin letters, and takes three bytes.
    """
    hints = hints_of(votes)
    return hints[-1] if hints else None
