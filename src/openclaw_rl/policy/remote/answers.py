"""What a server may say a reply's tokens are, whichever kind it is: anything else is no sample.

One place, so that neither a broken server nor one of another kind puts impossible numbers on record. Knows
no server.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from openclaw_rl.policy.engine import EngineError, SampledToken

ROUNDING = 1e-4
"""So far above 0 a log-prob may lie that is 0."""


def number(told: object) -> float:
    """A log-prob as JSON tells it, which has no NaN: what is not finite comes as null. Raises TypeError."""
    if told is None:
        return math.nan
    if isinstance(told, bool) or not isinstance(told, int | float):
        raise TypeError(f"{told!r} is no number")
    return float(told)


@dataclass(frozen=True, slots=True)
class Answers:
    """The checks of one server's answers."""

    name: str
    vocabulary: int
    """The number of token ids."""

    async def reply(
        self, tokens: AsyncGenerator[SampledToken], most: int, stop_ids: frozenset[int]
    ) -> AsyncGenerator[SampledToken]:
        """At most `most` tokens, and none after a stop id, whatever the server goes on with: leaving `tokens`
        is what cancels it. Raises EngineError for a token that cannot be; once a token is out, no other error
        is raised, since it must not be asked for again."""
        count = 0
        try:
            async with aclosing(tokens):
                async for told in tokens:
                    token = self._checked(told)
                    count += 1
                    if token.token_id in stop_ids:
                        token = replace(token, finish="stop")
                    elif count == most and token.finish is None:
                        token = replace(token, finish="length")
                    yield token
                    if token.finish:
                        return
        except EngineError as error:
            if count:
                raise EngineError(str(error)) from None
            raise

    def scored(self, told: Sequence[SampledToken], reply_ids: Sequence[int]) -> tuple[SampledToken, ...]:
        """Raises EngineError where they are not of the reply's tokens, or cannot be."""
        tokens = tuple(map(self._checked, told))
        if [token.token_id for token in tokens] != list(reply_ids):
            raise EngineError(f"{self.name} scored other tokens than it was given")
        return tokens

    def _checked(self, token: SampledToken) -> SampledToken:
        alternatives = tuple((self._id(each), self._logprob(told)) for each, told in token.alternatives)
        return replace(
            token,
            token_id=self._id(token.token_id),
            logprob=self._logprob(token.logprob),
            alternatives=alternatives,
        )

    def _id(self, told: object) -> int:
        if type(told) is not int or not 0 <= told < self.vocabulary:
            raise EngineError(f"{self.name} told a token id that the model does not have ({str(told)[:40]})")
        return told

    def _logprob(self, told: float) -> float:
        if not math.isfinite(told) or told > ROUNDING:
            raise EngineError(f"{self.name} told a log-prob that there is not ({told})")
        return min(told, 0.0)
