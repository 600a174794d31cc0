"""How a result is written out: what every protocol's writer offers, and what all of them begin with.

A writer is made for one answer and called in the order of the methods below. Both of its forms, stream
and plain body, are written from the same deltas and Completions. Nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openclaw_rl.gateway.completion import Completion, Delta, RunningTurn, TokenLogprob

_UNFINISHED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an answer before its first token."""

    turn_id: str
    """Of the first choice."""
    created: int
    model: str
    version: int
    prompt_tokens: int
    logprobs: bool
    """Whether the client asked for the tokens' log-probs."""

    @classmethod
    def of(cls, running: RunningTurn, *, logprobs: bool) -> Head:
        plan = running.plan
        return cls(
            plan.turn_id,
            int(plan.placed.arrived),
            plan.placed.request.model,
            running.version,
            len(plan.prompt_ids),
            logprobs,
        )


class Answer(Protocol):
    """One answer in one protocol. `choice` counts from 0."""

    def body(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The plain form, whole."""
        ...

    def opening(self) -> bytes:
        """What a stream begins with, sent before any token is there."""
        ...

    def idle(self) -> bytes:
        """No text, for clients that give up on a silent stream; they do not count comments as life."""
        ...

    def delta(self, choice: int, delta: Delta) -> bytes: ...

    def ending(self, choice: int, completion: Completion) -> bytes:
        """Sent when a choice is complete."""
        ...

    def closing(self, completions: Sequence[Completion]) -> bytes:
        """Sent when all are."""
        ...

    def failure(self) -> bytes:
        """The last event of a stream that broke."""
        ...


_LINE_SEPARATORS = {ord(one): f"\\u{ord(one):04x}" for one in "\x85\u2028\u2029"}


def token_fields(token: TokenLogprob) -> dict[str, Any]:
    """One token in the form that OpenAI's protocols share."""
    # A token that is part of a character has bytes that its text does not tell.
    bytes_ = None if _UNFINISHED in token.text else list(token.text.encode())
    return {"token": token.text, "logprob": token.logprob, "bytes": bytes_}


def compact(body: dict[str, Any]) -> str:
    """JSON on one line, also for clients that take every line separator of Unicode for the end of one."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).translate(_LINE_SEPARATORS)
