"""From sampled tokens to the text a client sees, piece by piece, with stop strings honoured.

A piece is held back while it could still change (an unfinished character) or could be the start of a
stop string. Knows no model and no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

_UNFINISHED = "\ufffd"


class Detokenizer:
    """Turns one reply's token ids into text as they come.

    The pieces returned by `feed` and `finish`, joined, are the reply's text, cut before the stop string
    that is complete first (of several that end together, the longest), wherever the tokens are cut.
    `stopped` is True once a stop string was met; what follows it is not shown. Special tokens are not
    shown, or only those outside `hidden` where it is given.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), hidden: frozenset[int] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(text for text in stop if text)
        self._hidden = hidden
        self._ids: list[int] = []
        self._prefix = 0  # ids before this are decoded and settled
        self._read = 0  # ids up to here were decoded into text
        self._held = ""  # text that may be the start of a stop string
        self.stopped_by = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met; `stopped_by` is that string."""
        return bool(self.stopped_by)

    def feed(self, token_id: int) -> str:
        """Add a token; returns the text that is now certain, often "" and never what follows a stop."""
        if self.stopped or (self._hidden is not None and token_id in self._hidden):
            return ""
        self._ids.append(token_id)
        # Decode with a little context on the left: some tokenizers drop a leading space otherwise.
        before = self._decode(self._ids[self._prefix : self._read])
        after = self._decode(self._ids[self._prefix :])
        if len(after) <= len(before) or after.endswith(_UNFINISHED):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        return self._release(after[len(before) :])

    def finish(self) -> str:
        """The rest of the text once the last token was fed."""
        if self.stopped:
            return ""
        before = self._decode(self._ids[self._prefix : self._read])
        after = self._decode(self._ids[self._prefix :])
        rest = self._release(after[len(before) :])
        held, self._held = self._held, ""
        return rest if self.stopped else rest + held

    def _decode(self, token_ids: list[int]) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=self._hidden is None)
        return text

    def _release(self, text: str) -> str:
        pending = self._held + text
        self._held = ""
        found = [
            (start + len(stop), start, stop) for stop in self._stop if (start := pending.find(stop)) >= 0
        ]
        if found:
            _, start, self.stopped_by = min(found)
            return pending[:start]
        for length in range(min(len(pending), max(map(len, self._stop), default=1) - 1), 0, -1):
            if any(stop.startswith(pending[-length:]) for stop in self._stop):
                self._held = pending[-length:]
                return pending[:-length]
        return pending
