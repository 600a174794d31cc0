"""The work that every contender does, as a file that each can read: replies, rewards, hints and the model.

Knows no contender.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from openclaw_rl.policy.chat_template import ChatTemplate

QUESTION = (
    "My bicycle makes a clicking noise at every turn of the pedals, but only when I ride uphill and stand "
    "up. The chain is new, and it was cleaned and oiled last week. What should I look at first, and why?"
)
HINT = "Answer in one short sentence, without a list."


@dataclass(frozen=True, slots=True)
class Reply:
    """One sample: token ids, and what was said about it."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    score: int


@dataclass(frozen=True, slots=True)
class Work:
    """All that a contender is told. `dtype` is that of the frozen weights; the adapter is float32."""

    model_folder: str
    dtype: str
    threads: int
    steps: int
    replies: Sequence[Reply]
    lora_rank: int
    lora_alpha: float
    lora_targets: Sequence[str]
    learning_rate: float
    tokens_per_pass: int
    """Of ours alone; TRL takes all in one."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Work:
        facts = json.loads(path.read_text(encoding="utf-8"))
        replies = [
            Reply(tuple(one["prompt_ids"]), tuple(one["response_ids"]), one["score"])
            for one in facts.pop("replies")
        ]
        return cls(replies=replies, **facts)


def replies(template: ChatTemplate, vocabulary: int, samples: int, tokens: int) -> list[Reply]:
    """Random tokens cost what real ones do. Scores alternate, so that every reply has an advantage."""
    chance = random.Random(0)
    prompt_ids = template.prompt_ids([{"role": "user", "content": QUESTION}], ())
    return [
        Reply(
            prompt_ids,
            tuple(chance.randrange(vocabulary) for _ in range(tokens)),
            1 if number % 2 else -1,
        )
        for number in range(samples)
    ]
