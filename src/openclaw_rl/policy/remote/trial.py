"""The self-test on an inference server: its answers to the probes, the base's beside an adapter's.

Also finds out, once, whether the server's log-probs are those of the engine contract. Knows no versions.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from openclaw_rl.model import Sampling
from openclaw_rl.policy import self_test
from openclaw_rl.policy.engine import BadVersionError, EngineError
from openclaw_rl.policy.remote.server import InferenceServer, UnreachableError

SECONDS = 120.0
"""For the probes together: in a busy server they wait their turn behind replies."""
_COOL = 0.5
"""A temperature at which log-probs lie twice as far apart."""
_FAR = 1.5
"""How much farther they must lie at least, whatever is rounded."""
_NARROW = 0.01
"""A top-p that leaves one token."""
_SAME = 1e-4
"""Differences up to here come of what shares a batch, in float32."""


class Trial:
    def __init__(self, server: InferenceServer, vocabulary: int) -> None:
        self._server = server
        self._vocabulary = vocabulary
        self._base: list[self_test.Answer] = []
        self.tells_full = False
        """Log-probs are of the whole vocabulary also where top-p or top-k leave a part of it."""

    async def base(self) -> None:
        """Ask the base model. Raises EngineError where it does not answer as the contract defines it."""
        self._base = await self._answers(None, 0.0)
        if wrong := self_test.fault(self._base, self._vocabulary):
            raise EngineError(f"the base model that {self._server.name} serves {wrong}")
        cool = await self._answers(None, _COOL)
        if max(map(_spread, cool)) < _FAR * max(map(_spread, self._base)):
            raise EngineError(
                f"{self._server.name} tells log-probs of before the temperature, which cannot be learned "
                f"from; start vLLM with --logprobs-mode processed_logprobs"
            )
        restricted = await self._answers(None, 1.0, top_p=_NARROW)
        self.tells_full = all(map(_is_same, restricted, self._base))

    async def of(self, version: int, adapter: str, *, is_felt: bool) -> None:
        """Ask an adapter. Raises BadVersionError where its answers are no model's, and EngineError where they
        are the base's although the adapter must be felt."""
        answers = await self._answers(adapter, 0.0)
        if wrong := self_test.fault(answers, self._vocabulary):
            raise BadVersionError(f"version {version} {wrong}")
        if is_felt and all(map(_is_same, answers, self._base)):
            raise EngineError(
                f"{self._server.name} answers for version {version} as for its base model: it does not apply "
                f"the adapter"
            )

    async def _answers(
        self, adapter: str | None, temperature: float, top_p: float = 1.0
    ) -> list[self_test.Answer]:
        asked = Sampling(temperature=temperature, top_p=top_p, max_tokens=1, top_logprobs=self_test.LIKELIEST)
        prompts = self_test.probes(self._vocabulary)
        try:
            async with asyncio.timeout(SECONDS):
                return list(await asyncio.gather(*(self._answer(adapter, each, asked) for each in prompts)))
        except TimeoutError:
            name = self._server.name
            raise UnreachableError(f"{name} did not answer the probes within {SECONDS:.0f} s") from None

    async def _answer(
        self, adapter: str | None, prompt_ids: tuple[int, ...], sampling: Sampling
    ) -> self_test.Answer:
        async with aclosing(self._server.stream(adapter, prompt_ids, sampling, frozenset())) as tokens:
            async for token in tokens:
                return token.alternatives
        return ()


def _spread(answer: self_test.Answer) -> float:
    """How far the likeliest lies above the least likely of those told."""
    return answer[0][1] - answer[-1][1]


def _is_same(answer: self_test.Answer, other: self_test.Answer) -> bool:
    of_other = dict(other)
    return all(abs(logprob - of_other.get(token_id, logprob - 1)) <= _SAME for token_id, logprob in answer)
