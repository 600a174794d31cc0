"""Whether recorded replies are what one version computes: each is scored again, in one whole forward pass.

Under the version that its turn names every log-prob must be the recorded one. Under the versions before and
after, one at least must not, or the check could not have failed: of that, a part of the replies is enough.
Knows no traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.learn.batch import Scored
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.model import Turn
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network

TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""How far one log-prob may be from the recorded one. In bfloat16 rounding depends on how many tokens are
computed together: one when it is sampled, all of them here."""
TOKENS_PER_PASS = 2048
OTHERS_EVERY = 4
"""One reply in so many is scored under other versions too."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Of one reply: the largest difference of a log-prob under its version, and under another."""

    turn_id: str
    own: float
    other: float | None
    """The smaller one of its version's neighbours, where they were asked."""


def verify(
    network: Network,
    turns: Sequence[Turn],
    adapter_of: Callable[[int], Adapter],
    newest: int,
    done: Callable[[], None] = lambda: None,
) -> list[Verified]:
    """Every turn under its version, some under that version's neighbours, between 0 and `newest`, as well.

    `done` is called after each version.
    """
    own: dict[str, float] = {}
    others: dict[str, list[float]] = {turn.id: [] for turn in turns[::OTHERS_EVERY]}
    for version in range(newest + 1):
        near = [
            turn
            for turn in turns
            if turn.policy_version == version
            or (abs(turn.policy_version - version) == 1 and turn.id in others)
        ]
        adapter = adapter_of(version) if version else None
        for turn, difference in zip(near, _differences(network, near, adapter), strict=True):
            if turn.policy_version == version:
                own[turn.id] = difference
            else:
                others[turn.id].append(difference)
        done()
    return [Verified(turn.id, own[turn.id], min(others.get(turn.id, ()), default=None)) for turn in turns]


def _differences(network: Network, turns: Sequence[Turn], adapter: Adapter | None) -> list[float]:
    """The largest difference between recorded and fresh log-probs, of each turn."""
    scorer = Scorer(network, adapter, network, TOKENS_PER_PASS, lambda: None)
    parts = [
        Scored(place, turn.prompt_ids, turn.response_ids, turn.sampling.temperature)
        for place, turn in enumerate(turns)
    ]
    fresh = scorer.log_probs(parts)
    return [
        (fresh[place].cpu() - torch.tensor(turn.logprobs)).abs().max().item()
        for place, turn in enumerate(turns)
    ]
