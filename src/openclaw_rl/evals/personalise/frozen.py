"""What only forward passes tell: how likely replies are to the told base, and how far a policy has drifted.

Loads the model once, in this process, beside the versions that a run has left on disk. Knows no server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from openclaw_rl.config import LearnSettings, Settings
from openclaw_rl.learn.batch import Scored, packed
from openclaw_rl.learn.predictions import Predictions
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import log_probs

UNRELATED = (
    "Translate into French: The weather is nice today.",
    "Write a short poem about autumn leaves.",
    "Write a Python function that returns the larger of two numbers.",
    "Summarize in your own words: The committee met on Monday and agreed to repair the old bridge.",
    "Write a polite email asking to move a meeting to Thursday.",
    "List the months of the year.",
    "Correct the grammar: She don't likes apples.",
    "Tell me a joke about computers.",
    "Invent a name for a small coffee shop and say why you chose it.",
    "Turn this into a question: The library opens at nine.",
    "Describe a sunset to someone who has never seen one.",
    "Write the first lines of a story about a dragon who is afraid of fire.",
    "Give three words that rhyme with light.",
    "Rewrite more formally: Hey, can you send me that thing?",
    "What would you pack for a week at the beach?",
    "Make up a riddle about the moon.",
)
"""Prompts of other kinds than the users' questions."""


class Frozen:
    """The base model, and any version as an adapter on it."""

    def __init__(self, model: str, say: Callable[[str], None]) -> None:
        folder = model_files.resolve(model, say)
        device = model_files.choose_device("auto")
        self._template: ChatTemplate = model_files.load_template(folder)
        self._network = Network.load(
            folder,
            dtype=model_files.choose_dtype("auto", device),
            device=device,
            adapter_targets=Settings().learn.lora_targets,
        )

    def log_prob(self, asked: Sequence[str], replies: Sequence[str], hint: str) -> float:
        """Mean over replies of the mean log-prob of their tokens under the base that is told `hint`."""
        parts = self._parts([f"{question}\n\n{hint}" for question in asked], replies)
        means = [found.mean().item() for found in self._scorer().log_probs(parts).values()]
        return sum(means) / len(means) if means else 0.0

    def drift(self, version: Path | None, prompts: Sequence[str], replies: Sequence[str]) -> float:
        """KL(version || base) in nats per token, over the whole vocabulary, along the version's `replies`."""
        if version is None:
            return 0.0
        own, base = self._scorer(Adapter.load(version, self._network.adapted)), self._scorer()
        parts, total, tokens = self._parts(prompts, replies), 0.0, 0
        with torch.no_grad():
            for group in packed(parts, own.tokens_per_pass):
                ours, theirs = (_distributions(scorer.predictions(group)) for scorer in (own, base))
                total += (ours.exp() * (ours - theirs)).sum().item()
                tokens += len(ours)
        return total / tokens if tokens else 0.0

    def _scorer(self, adapter: Adapter | None = None) -> Scorer:
        return Scorer(self._network, adapter, self._network, LearnSettings().tokens_per_pass, lambda: None)

    def _parts(self, prompts: Sequence[str], replies: Sequence[str]) -> list[Scored]:
        encode = self._template.tokenizer.encode
        found = []
        for place, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            response = tuple(encode(reply, add_special_tokens=False).ids)
            if response:
                prompt_ids = self._template.prompt_ids([{"role": "user", "content": prompt}])
                found.append(Scored(place, tuple(prompt_ids), response, 1.0))
        return found


def _distributions(predictions: Predictions) -> torch.Tensor:
    """Log-probs of the whole vocabulary: [rows, vocabulary]."""
    return log_probs(predictions.project(predictions.hidden), predictions.temperatures)
