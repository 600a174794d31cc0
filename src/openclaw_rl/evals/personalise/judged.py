"""What the judge made of the words of a user whose mood is known. Reads the store of a finished run."""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.store import Store


def count(store: Store, said: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """By mood, how often the judge of trained turns said +1, 0, -1, and how often it found a hint.

    `said` gives the mood behind all words. Turns that no update took are not counted.
    """
    found: dict[str, dict[str, int]] = {}
    last = store.learning.last_update()
    for number in range(1, (last.id if last else 0) + 1):
        update = store.learning.update(number)
        for turn_id in update.turn_ids if update else ():
            sample = store.learning.sample(turn_id)
            if sample is None:
                continue
            mood = said.get(str(sample.next_state.messages[-1].get("content")))
            if mood is None:
                continue
            row = found.setdefault(mood, {"+1": 0, "0": 0, "-1": 0, "hint": 0})
            row["+1" if sample.reward > 0 else "-1" if sample.reward < 0 else "0"] += 1
            row["hint"] += sample.hint is not None
    return found
