"""What an inference server must be able to do to be an engine of ours, and the ways in which it can fail.

Adapters have names that are never used twice. Knows no HTTP and no versions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

from openclaw_rl.model import Sampling
from openclaw_rl.policy.engine import EngineError, SampledToken


class UnreachableError(EngineError):
    """The server is not there, or went away before it had answered anything; it may come back."""


class UnknownAdapterError(EngineError):
    """The server has no adapter of that name: it was restarted, and registrations live in its memory."""


class InferenceServer(Protocol):
    """One server that holds one base model and some adapters. `adapter` None is the base model."""

    name: str
    """As people call it."""
    reads_grammars: bool
    """Whether it takes llguidance's Lark text."""
    mixes_base: bool
    """Whether a request without an adapter may be computed with another request's."""

    async def context_length(self) -> int:
        """The most tokens of prompt and reply together."""
        ...

    async def adapters(self) -> dict[str, str]:
        """The names of the loaded adapters and the folders they came from."""
        ...

    async def load(self, adapter: str, folder: Path) -> None:
        """Raises EngineError, with what to do about it."""
        ...

    async def unload(self, adapter: str) -> None:
        """Does nothing for one that is not loaded."""
        ...

    def stream(
        self, adapter: str | None, prompt_ids: tuple[int, ...], sampling: Sampling, stop_ids: frozenset[int]
    ) -> AsyncGenerator[SampledToken]:
        """The tokens of one reply; the last has its finish. Closing the iterator ends the request.

        The tokens are as the server tells them: see `answers`. Raises UnreachableError, UnknownAdapterError
        and EngineError.
        """
        ...

    async def score(
        self,
        adapter: str | None,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        top_logprobs: int,
    ) -> list[SampledToken]:
        """See `PolicyEngine.score`."""
        ...

    def unlearnable(self, sampling: Sampling) -> str:
        """See `PolicyEngine.unlearnable`."""
        ...

    async def close(self) -> None: ...
