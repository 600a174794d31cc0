"""How far a measurement is, in lines: for a pipe or a log file, where no bar can be drawn.

Knows no measurement and no terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SILENT_SECONDS = 30.0
"""While a step goes on, a line comes when so long none has come."""


class ProgressLines:
    """A line at each step that begins, and some while a long one lasts."""

    def __init__(self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._step: str | None = None
        self._said_at = 0.0

    def tell(self, step: str, text: str) -> None:
        """Say `text` if `step` is another than before, or if nothing was said for long."""
        now = self._clock()
        if step == self._step and now - self._said_at < SILENT_SECONDS:
            return
        self._step, self._said_at = step, now
        self._say(text)
