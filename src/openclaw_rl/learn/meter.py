"""What an update measured: weighted means, sums, and the seconds spent in its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Meter:
    """Collects numbers over the passes of one update."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[float, float]] = {}
        self._sums: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def mean(self, name: str, value: float, weight: float) -> None:
        """Part of a mean: `value` stands for `weight` tokens or samples."""
        total, weights = self._means.get(name, (0.0, 0.0))
        self._means[name] = (total + value * weight, weights + weight)

    def add(self, name: str, value: float) -> None:
        """Part of a sum."""
        self._sums[name] = self._sums.get(name, 0.0) + value

    @contextmanager
    def seconds(self, name: str) -> Iterator[None]:
        """Count the time spent inside under `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def read(self) -> dict[str, float]:
        """Everything by name; a mean over nothing is 0."""
        means = {name: total / weight if weight else 0.0 for name, (total, weight) in self._means.items()}
        spent = {f"seconds_{name}": value for name, value in self._seconds.items()}
        return {**means, **self._sums, **spent}
