"""The engine contract: token ids in, token ids with log-probs and a policy version out.

Every engine (embedded, vLLM, SGLang) is one of these, and passes the tests in tests/engines. Nothing here
knows text, messages, HTTP or weights; text is made from tokens by `chat_template` and `detokenizer`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from openclaw_rl.model import SMALLEST_TEMPERATURE, PolicyVersion, Sampling

FinishReason = Literal["stop", "length"]


class EngineError(RuntimeError):
    """The engine could not do what was asked; `str(error)` is fit for a user."""


class EngineBusyError(EngineError):
    """Too many requests wait already; try again later."""


class PromptTooLongError(EngineError):
    """The prompt leaves no room for one token of reply."""

    def __init__(self, prompt_tokens: int, context_length: int, *, at_least: bool = False) -> None:
        self.prompt_tokens = prompt_tokens
        self.counted = f"{'at least ' if at_least else ''}{prompt_tokens}"
        self.context_length = context_length
        super().__init__(
            f"This model's maximum context length is {context_length} tokens. "
            f"However, your messages resulted in {self.counted} tokens. "
            f"Please reduce the length of the messages."
        )


class GrammarError(EngineError):
    """A grammar that the engine cannot compile; `str(error)` says why."""


class UnknownVersionError(EngineError):
    """The asked policy version does not exist or cannot be loaded."""


class BadVersionError(EngineError):
    """The version's own weights are at fault, so no later try can succeed."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token as it was drawn.

    `logprob` is log softmax(logits / temperature) of the full vocabulary, before top-p, top-k and the
    grammar, at the request's temperature (1.0 when greedy): the policy's own, also where a grammar left it
    no choice. `finish` is set on the last token alone; a reply whose budget ends within its grammar
    finishes as "length".
    """

    token_id: int
    logprob: float
    finish: FinishReason | None = None
    alternatives: tuple[tuple[int, float], ...] = ()
    """The `sampling.top_logprobs` likeliest tokens here with their log-probs, defined as above, the likeliest
    first. The sampled one need not be among them."""


class Generation(Protocol):
    """One running request, pinned to `version` from its admission to its end.

    Iterate it for the tokens. Call `cancel` when nobody wants the rest: it frees the engine's resources
    within one decode step, may be called at any time, and does nothing once the iteration has ended. Whoever
    iterates all the same comes to an end.
    """

    @property
    def version(self) -> int: ...

    def __aiter__(self) -> AsyncIterator[SampledToken]: ...

    def cancel(self) -> None: ...


class PolicyEngine(Protocol):
    """An engine that serves several versions of one model."""

    @property
    def context_length(self) -> int:
        """The most tokens that prompt and reply may have together."""
        ...

    @property
    def serving_version(self) -> int:
        """The version that a request gets when it names none."""
        ...

    def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
    ) -> Generation:
        """Admit a request; returns at once. `sampling.stop` is not the engine's: see `detokenizer`.

        The reply's budget is cut to what the context leaves. Raises PromptTooLongError, EngineBusyError,
        GrammarError, or UnknownVersionError when a version is asked that is not loaded. What goes wrong
        later is an EngineError of the iteration.
        """
        ...

    async def score(
        self,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        *,
        top_logprobs: int = 0,
        version: int | None = None,
    ) -> tuple[SampledToken, ...]:
        """The reply's tokens as `generate` would have recorded them at temperature 1, had it drawn them.

        One pass over given tokens under one version. Raises EngineError, and what `generate` raises.
        """
        ...

    def unlearnable(self, sampling: Sampling) -> str:
        """Why this engine cannot record the log-probs that `SampledToken` defines for this sampling.

        Empty where it can. A turn that was sampled so is served, and never trains.
        """
        ...

    async def prepare_grammar(self, grammar: str) -> object:
        """Compile what a `Sampling.grammar` will be. `generate` finds it while the caller holds the result.

        Raises GrammarError, which says why it cannot be compiled, EngineBusyError when too many others are
        compiled first, and EngineError when the engine is closed.
        """
        ...

    async def publish(self, version: PolicyVersion, *, serve: bool = True) -> None:
        """Load a version, test it (`self_test`) and, with `serve`, make it the serving one in a single step.

        Requests already running finish on theirs: an old version may be unloaded once its last request has
        ended, never before. Raises BadVersionError when the weights are damaged, of another model, or fail
        the test, and EngineError when something else failed; either way the old version goes on serving.
        """
        ...

    async def close(self) -> None: ...


def room_for_reply(prompt_ids: tuple[int, ...], context_length: int) -> int:
    """Tokens that the context leaves to a reply. Raises PromptTooLongError, or EngineError for no prompt."""
    if not prompt_ids:
        raise EngineError("the prompt is empty")
    if len(prompt_ids) >= context_length:
        raise PromptTooLongError(len(prompt_ids), context_length)
    return context_length - len(prompt_ids)


def check_sampling(sampling: Sampling) -> None:
    """What no engine can draw by. Raises EngineError, for the gateway has let no such request pass."""
    fits = (
        (sampling.temperature == 0 or SMALLEST_TEMPERATURE <= sampling.temperature < math.inf)
        and 0 < sampling.top_p <= 1
        and sampling.top_k >= 0
        and sampling.max_tokens >= 1
        and sampling.top_logprobs >= 0
    )
    if not fits:
        raise EngineError(f"no token can be drawn by {sampling}")


def check_scored(prompt_ids: tuple[int, ...], reply_ids: tuple[int, ...], context_length: int) -> None:
    """What every engine refuses to score. Raises PromptTooLongError, or EngineError for nothing to score."""
    if not prompt_ids or not reply_ids:
        raise EngineError("there is nothing to score, or nothing before it")
    if len(prompt_ids) + len(reply_ids) > context_length:
        raise PromptTooLongError(len(prompt_ids) + len(reply_ids), context_length)
