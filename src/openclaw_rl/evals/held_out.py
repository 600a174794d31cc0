"""The score of a policy version: how many first replies to held-out questions please.

Asks the running server for the likeliest reply of a pinned version (such turns never train) and scores
it. The hinted base model is the teacher that training distils; its score is the ceiling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openclaw_rl.evals.client import ChatClient
from openclaw_rl.evals.scoring import style_fault, useful_fault
from openclaw_rl.model import Message

HINT = "Answer in one short sentence."
"""What the demo's ceiling adds to each question."""

MAX_TOKENS = 96


@dataclass(frozen=True, slots=True)
class ScoredReply:
    question: str
    reply: str
    finished: bool
    style_fault: str
    useful_fault: str

    @property
    def pleases(self) -> bool:
        return not self.style_fault and not self.useful_fault


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scored first replies of one version to the held-out questions."""

    version: int
    hinted: bool
    replies: tuple[ScoredReply, ...]

    @property
    def score(self) -> float:
        return self._share([reply.pleases for reply in self.replies])

    @property
    def style(self) -> float:
        return self._share([not reply.style_fault for reply in self.replies])

    @property
    def useful(self) -> float:
        return self._share([not reply.useful_fault for reply in self.replies])

    def _share(self, which: Sequence[bool]) -> float:
        return sum(which) / len(self.replies)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Evaluation:
        return cls(saved["version"], saved["hinted"], tuple(ScoredReply(**one) for one in saved["replies"]))


async def evaluate(
    client: ChatClient,
    terms: Mapping[str, Sequence[str]],
    *,
    model: str,
    version: int,
    run: str,
    hint: str = "",
    system: str = "",
    style: Callable[[str], str] = style_fault,
    max_tokens: int = MAX_TOKENS,
) -> Evaluation:
    """Score `version` on the questions of `terms`, at temperature 0.

    `hint` is added to each question, which makes it the ceiling; `system` goes before it. `style` says what
    is wrong with a reply's form, or "". `run` keeps sessions of runs apart.
    """
    before: list[Message] = [{"role": "system", "content": system}] if system else []

    async def ask(place: int, question: str) -> ScoredReply:
        content = f"{question}\n\n{hint}" if hint else question
        reply = await client.ask(
            f"{model}@{version}",
            [*before, {"role": "user", "content": content}],
            session=f"{run}-{version}-{'hinted' if hint else 'plain'}-{place}",
            max_tokens=max_tokens,
            temperature=0,
            last=True,
        )
        useful = useful_fault(reply.text, terms[question], finished=reply.finished)
        return ScoredReply(question, reply.text, reply.finished, style(reply.text), useful)

    replies = await asyncio.gather(*(ask(place, question) for place, question in enumerate(terms)))
    return Evaluation(version, bool(hint), tuple(replies))
