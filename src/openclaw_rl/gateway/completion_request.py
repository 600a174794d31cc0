"""What a request asks for, whichever protocol it came in.

Each file of `protocols/` makes one of these from its body; everything behind it (placing, pairing,
sampling, recording) knows only this form. Knows no HTTP and no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openclaw_rl.config import SamplingSettings
from openclaw_rl.model import SMALLEST_TEMPERATURE, Message, Sampling, Tool
from openclaw_rl.policy.grammars import ReplyForm

MAX_CHOICES = 8
MAX_MESSAGES = 10_000
MAX_STOPS = 64
MAX_TOP_LOGPROBS = 20
_SMALLEST_TOP_P = 1e-6


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """None means that the client said nothing about it."""

    model: str
    messages: tuple[Message, ...]
    """In OpenAI's chat form, as the client sent them or as its protocol's words translate to it."""
    tools: tuple[Tool, ...] = ()
    """Those that the policy is offered, in OpenAI's chat form."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    choices: int = 1
    one_call: bool = False
    """The reply ends with its first tool call."""
    must_call: tuple[str, ...] = ()
    """The reply is one call of one of these tools."""
    form: ReplyForm | None = None
    """What the answer must look like, where it is not free; tools may be called all the same."""
    logprobs: bool = False
    top_logprobs: int = 0
    """How many of the likeliest tokens are told beside each sampled one."""
    stream: bool = False
    session_names: tuple[str | None, ...] = ()
    """What may name the session, the most telling first."""
    person: str = ""
    """Whose conversation it is, as far as the client says so; one person may have several at once."""
    continues: str | None = None
    """The turn that the client says it goes on from."""
    turn_type: str | None = None
    session_done: bool | int | str | None = None
    ignored: tuple[str, ...] = ()
    """Fields and kinds of tools that this server does nothing with."""

    def sampling(self, defaults: SamplingSettings, room: int, choice: int = 0, grammar: str = "") -> Sampling:
        """How to draw the tokens of one choice; `room` is how many the context leaves for them."""
        top_p = defaults.top_p if self.top_p is None else self.top_p
        temperature = defaults.temperature if self.temperature is None else self.temperature
        wanted = defaults.max_tokens if self.max_tokens is None else self.max_tokens
        return Sampling(
            temperature=temperature if temperature >= SMALLEST_TEMPERATURE else 0.0,
            # OpenAI allows 0, which keeps the likeliest token alone.
            top_p=max(top_p, _SMALLEST_TOP_P),
            top_k=max(self.top_k or 0, 0),
            max_tokens=max(1, min(wanted, room)),
            stop=tuple(text for text in self.stop if text),
            # With one seed for all, every choice would be the same.
            seed=None if self.seed is None else self.seed + choice,
            grammar=grammar,
            top_logprobs=self.top_logprobs,
        )


def function_tool(**function: Any) -> Tool:
    """A function that the policy is offered, in OpenAI's chat form, of the fields that are given."""
    given = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": given}
