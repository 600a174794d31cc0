"""How many threads to compute with beside other programs that want the cores.

Threads that spin at barriers use all the time of their cores. What the process's CPU time lacks of that,
another program has had, and then the thread that all others wait for is often the one without a core:
several times slower than to compute with fewer threads. Knows no PyTorch and no other process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_SECONDS = 0.25
"""Cores are counted over at least so long: some steps, and more than a client takes to send requests."""

MISSED_CORES = 0.3
"""Fewer threads are used when so much of a core was missing. A client on the same machine takes less."""

CROWDED_CORES = 0.1
"""While so much is missing even of the fewer, it is too early to try all threads again."""

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 16.0
"""All threads are tried again after a rest, which doubles each time that it was too early."""


class Contention:
    """Told before each step, decides how many threads it gets."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """Both clocks in seconds; `cpu_clock` counts what all threads of the process have used."""
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._in_use = 0
        self._most: int | None = None
        self._rest = FIRST_REST_SECONDS
        self._rests_until = 0.0
        self._worked = self._used = 0.0
        self.begin()

    def begin(self) -> None:
        """Work begins; what the process uses in a pause says nothing."""
        self._now, self._cpu_now = self._clock(), self._cpu_clock()

    def end(self) -> None:
        """A pause begins. Short replies make a window together."""
        self._look()

    def threads(self, wanted: int) -> int:
        """For the next step, of `wanted` at most."""
        self._look()
        threads = min(wanted, self._most or wanted)
        if threads != self._in_use:
            self._in_use = threads
            self._worked = self._used = 0.0
        return threads

    def _look(self) -> None:
        now, cpu_now = self._now, self._cpu_now
        self.begin()
        self._worked += self._now - now
        self._used += self._cpu_now - cpu_now
        if self._worked >= WINDOW_SECONDS:
            self._conclude(had=self._used / self._worked)
            self._worked = self._used = 0.0

    def _conclude(self, had: float) -> None:
        """From the cores that the threads have had."""
        missed = self._in_use - had
        if self._most is None and missed > MISSED_CORES:
            self._most = max(1, int(had))
            self._rests_until = self._now + self._rest
            self._rest = min(2 * self._rest, LONGEST_REST_SECONDS)
        elif self._most is None:
            self._rest = FIRST_REST_SECONDS
        elif missed > CROWDED_CORES:
            self._rests_until = max(self._rests_until, self._now + FIRST_REST_SECONDS)
        elif self._now >= self._rests_until:
            self._most = None
