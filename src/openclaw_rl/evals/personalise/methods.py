"""The methods that are compared: what each asks of the product's settings, and what it does by itself.

All but `base`, `hinted` and `memory` are methods of the learner with its default settings; they share batch,
steps and adapter. Knows no persona.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    learns: bool = True
    """By updates of the weights."""
    remembers: bool = False
    """By what the user said last, kept in the system prompt."""
    told: bool = False
    """By the wish that is added to each question: what the teacher sees, and so the ceiling of telling."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the server and the learner, beside the product's defaults."""

    @property
    def talks(self) -> bool:
        return self.learns or self.remembers


def _learner(name: str) -> Method:
    return Method(name, settings={"learn.method": name})


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("base", learns=False, settings={"learn.enabled": False}),
        Method("hinted", learns=False, told=True, settings={"learn.enabled": False}),
        Method("memory", learns=False, remembers=True, settings={"learn.enabled": False}),
        _learner("hybrid"),
        _learner("combined"),
        _learner("binary"),
        _learner("opd"),
        _learner("sft"),
        # What hybrid is without the wish that stands: turns without a hint learn from their score alone.
        Method("hybrid_own_hints", settings={"learn.method": "hybrid", "learn.without_hint": "nothing"}),
    )
}
"""In the order in which they are run: whoever stops early has the most telling ones."""
