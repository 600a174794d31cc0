"""Samples for the learner: turns of the tiny model with a judgement, in memory or waiting in a store."""

from __future__ import annotations

import time
from typing import Any

import torch
from learnable_model import sample_turn

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.model import Judgement, NextState, Sample, Score, Turn, Vote
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.store import Store, new_id

HINT = "Please answer in French, and be brief."


def a_sample(turn: Turn, score: Score | None = 1, *hints: str | None) -> Sample:
    """A judged turn; of several hints the longest is the judgement's, as the judge would choose."""
    given = [hint for hint in hints if hint]
    votes = tuple(Vote("directive", 1, hint=hint) for hint in given)
    judgement = Judgement(
        "judge_1", turn.id, "ns_1", "rules", score, max(given, key=len, default=None), votes, 3.0
    )
    said = NextState("ns_1", turn.id, "conversation", ({"role": "user", "content": "Hm."},), 2.5)
    return Sample(turn, judgement, said)


def some_samples(network: Network, template: ChatTemplate, **sampling: Any) -> list[Sample]:
    """Four samples of different lengths: two scored, one hinted, one both."""
    turns = [
        sample_turn(network, template, text, seed=place, max_tokens=4 + 3 * place, **sampling)
        for place, text in enumerate(["Hi", "What is the capital of France?", "Count to three.", "Why?"])
    ]
    return [
        a_sample(turns[0], 1),
        a_sample(turns[1], -1),
        a_sample(turns[2], None, HINT),
        a_sample(turns[3], -1, "Give one reason only."),
    ]


def put(store: Store, turn: Turn, score: Score | None = 1, hint: str | None = None) -> Turn:
    """Write a turn into the store, with what followed and a judgement: it waits for the learner."""
    store.conversations.open_session(turn.session_id, "me")
    store.conversations.add_turn(turn)
    said = store.conversations.add_next_state(turn.id, "conversation", [{"role": "user", "content": "Hm."}])
    judged = Judgement(new_id("judge"), turn.id, said.id, "rules", score, hint, (), time.time())
    store.learning.add_judgement(judged)
    return turn


def a_trainer(network: Network, template: ChatTemplate, **settings: Any) -> Trainer:
    """A trainer of an adapter of rank 4 whose steps are large enough to see; by default combined."""
    return Trainer(
        network,
        template,
        LearnSettings(**{"method": "combined", "lora_rank": 4, "lora_alpha": 8, **settings}),
    )


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """A copy of what is trained."""
    return {name: tensor.detach().clone() for name, tensor in trainer.parameters.items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of tensors are equal bit by bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
