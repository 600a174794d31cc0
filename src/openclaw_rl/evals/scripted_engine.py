"""An engine that says what was written for it, and counts what was asked of it.

For tests and for measurements of everything around a model. Knows nothing of how it is asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.engine import (
    BadVersionError,
    EngineBusyError,
    EngineError,
    FinishReason,
    GrammarError,
    SampledToken,
    UnknownVersionError,
    room_for_reply,
)


@dataclass
class Script:
    """One reply: its text, how it ends, and what goes wrong on the way."""

    text: str = "fine"
    finish: FinishReason = "stop"
    delay: float = 0.0
    """Seconds before each token."""
    fails_after: int | None = None
    """Raise an EngineError after so many tokens."""
    crashes: bool = False
    """With `fails_after`: raise something that is no EngineError."""


class ScriptedGeneration:
    def __init__(self, engine: ScriptedEngine, script: Script, sampling: Sampling, version: int) -> None:
        self._engine = engine
        self._script = script
        self._budget = sampling.max_tokens
        self._alternatives = sampling.top_logprobs
        self.version = version
        self.cancelled = False
        self.ended = False

    def cancel(self) -> None:
        if not self.ended and not self.cancelled:
            self.cancelled = True
            self._engine.cancels += 1
            if self._engine.room is not None:
                self._engine.room += 1

    async def __aiter__(self) -> AsyncIterator[SampledToken]:
        script = self._script
        ids = self._engine.template.tokenizer.encode(script.text, add_special_tokens=False).ids
        if script.finish == "stop":
            ids = [*ids, min(self._engine.template.stop_ids)]
        finish = script.finish if len(ids) <= self._budget else "length"
        ids = ids[: self._budget]
        for position, token_id in enumerate(ids):
            if script.delay:
                await asyncio.sleep(script.delay)
            if position == script.fails_after:
                raise KeyError(script.text) if script.crashes else EngineError("out of memory")
            if self.cancelled:
                return
            last = position == len(ids) - 1
            self.ended = last
            self._engine.sampled += 1
            logprob = -0.5 - position / 1024
            # The one that was sampled, and then others.
            likeliest = tuple((token_id + each, logprob - each) for each in range(self._alternatives))
            yield SampledToken(token_id, logprob, finish if last else None, likeliest)


class ScriptedEngine:
    """Replies in the order of `scripts`, then with "fine"."""

    def __init__(self, template: ChatTemplate, context_length: int = 4096) -> None:
        self.template = template
        self.context_length = context_length
        self.serving_version = 0
        self.versions = {0}
        self.unloadable: dict[int, str] = {}
        """Versions that cannot be published, and why."""
        self.failing_publications = 0
        """So many of the next ones fail, through no fault of the version."""
        self.scripts: deque[Script] = deque()
        self.prepared: list[str] = []
        """The grammars that were to be compiled."""
        self.uncompilable = ""
        """No grammar with this in it can be compiled."""
        self.unlearnable_because = ""
        """Why nothing that is sampled may be learned from."""
        self.busy = False
        self.room: int | None = None
        """So many generations more are admitted; None admits any number."""
        self.cancels = 0
        self.sampled = 0
        self.published: list[tuple[int, bool]] = []
        self.asked: list[tuple[tuple[int, ...], Sampling, int | None]] = []

    def say(self, *replies: str | Script) -> None:
        self.scripts.extend(Script(reply) if isinstance(reply, str) else reply for reply in replies)

    def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
    ) -> ScriptedGeneration:
        if self.busy or self.room == 0:
            raise EngineBusyError("256 requests wait already")
        room_for_reply(prompt_ids, self.context_length)
        if version is not None and version not in self.versions:
            raise UnknownVersionError(f"version {version} is not loaded")
        if self.room is not None:
            self.room -= 1
        self.asked.append((prompt_ids, sampling, version))
        script = self.scripts.popleft() if self.scripts else Script()
        pinned = self.serving_version if version is None else version
        return ScriptedGeneration(self, script, sampling, pinned)

    async def score(
        self,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        *,
        top_logprobs: int = 0,
        version: int | None = None,
    ) -> tuple[SampledToken, ...]:
        raise EngineError("a script has no log-probs of other tokens than its own")

    def unlearnable(self, sampling: Sampling) -> str:
        return self.unlearnable_because

    async def prepare_grammar(self, grammar: str) -> object:
        self.prepared.append(grammar)
        if self.uncompilable and self.uncompilable in grammar:
            raise GrammarError(f"{self.uncompilable} is not known")
        return grammar

    async def publish(self, version: PolicyVersion, *, serve: bool = True) -> None:
        self.published.append((version.number, serve))
        if version.number in self.unloadable:
            raise BadVersionError(self.unloadable[version.number])
        if self.failing_publications:
            self.failing_publications -= 1
            raise EngineError("too many open files")
        self.versions.add(version.number)
        if serve:
            self.serving_version = version.number

    async def close(self) -> None:
        pass
