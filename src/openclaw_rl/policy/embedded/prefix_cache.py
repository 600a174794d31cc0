"""Keys and values of finished sequences, kept so that the next turn need not compute them again.

Entries belong to one policy version and are found by their tokens, so a stale or foreign hit is not
possible. The least recently used go first when the token budget is spent. Knows no sessions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openclaw_rl.policy.embedded.arena import Saved


@dataclass(frozen=True, slots=True)
class Entry:
    version: int
    token_ids: np.ndarray
    saved: Saved


class PrefixCache:
    """At most `budget` tokens of computed prefixes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._next_key = 0
        self.tokens = 0

    def add(self, version: int, token_ids: Sequence[int], saved: Saved) -> None:
        """Keep a finished sequence; entries that it extends are dropped."""
        tokens = np.asarray(token_ids, dtype=np.int32)
        if len(tokens) > self._budget:
            return
        for key, entry in list(self._entries.items()):
            if entry.version == version and _common(entry.token_ids, tokens) == len(entry.token_ids):
                self._drop(key)
        self._entries[self._next_key] = Entry(version, tokens, saved)
        self._next_key += 1
        self.tokens += len(tokens)
        while self.tokens > self._budget:
            self._drop(next(iter(self._entries)))

    def longest(self, version: int, token_ids: Sequence[int]) -> tuple[int, Saved | None]:
        """How many leading tokens are known under this version, and what was saved for them."""
        tokens = np.asarray(token_ids, dtype=np.int32)
        best_length, best_key = 0, None
        for key, entry in self._entries.items():
            if entry.version == version and (length := _common(entry.token_ids, tokens)) > best_length:
                best_length, best_key = length, key
        if best_key is None:
            return 0, None
        self._entries.move_to_end(best_key)
        return best_length, self._entries[best_key].saved

    def forget_version(self, version: int) -> None:
        """Drop what a version that is gone has left."""
        for key in [key for key, entry in self._entries.items() if entry.version == version]:
            self._drop(key)

    def _drop(self, key: int) -> None:
        self.tokens -= len(self._entries.pop(key).token_ids)


def _common(first: np.ndarray, second: np.ndarray) -> int:
    """Length of the common prefix."""
    shorter = min(len(first), len(second))
    different = first[:shorter] != second[:shorter]
    return int(different.argmax()) if different.any() else shorter
