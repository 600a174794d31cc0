"""The baseline without learning: what the user asked for stays in the system prompt of later conversations.

What a memory tool would note: the sentences of a complaint that say how replies should be, read by the
product's own reader; the newest few are kept. Knows no HTTP.
"""

from __future__ import annotations

from collections import deque

from openclaw_rl.judge.user_replies import read_reply

KEPT = 3

OPENING = "What this user has asked for before:"


class Memory:
    """Empty at first."""

    def __init__(self) -> None:
        self._notes: deque[str] = deque(maxlen=KEPT)

    def note(self, words: str, question: str, reply: str) -> None:
        """Keep what `words`, said to `reply`, ask for, if anything."""
        hint = read_reply(words, question, reply).hint
        if hint:
            if hint in self._notes:
                self._notes.remove(hint)
            self._notes.append(hint)

    @property
    def system_prompt(self) -> str:
        """ "" while nothing was noted."""
        return "\n".join([OPENING, *(f"- {note}" for note in self._notes)]) if self._notes else ""
