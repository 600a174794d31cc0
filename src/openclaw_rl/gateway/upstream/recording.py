"""One request to the upstream, as it is kept: placed like any other, and its reply stored without tokens.

What the request says about earlier turns is recorded before it is passed on. Its own turns are on disk
before the caller learns that they have ended. Knows no HTTP, and no protocol but by its readers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anyio import to_thread

from openclaw_rl.gateway.placement import Placed
from openclaw_rl.gateway.upstream.headers import Headers
from openclaw_rl.gateway.upstream.reply import Choice, Reply
from openclaw_rl.model import OTHER_MODEL, Sampling, Turn
from openclaw_rl.store import Store, new_id
from openclaw_rl.store.recordings import Usage

BROKE_OFF = "the upstream's answer broke off"
REPORTED_ERROR = "the upstream reported an error within its answer"
LARGE_BODY = 256 * 1024
"""Characters from which JSON is read in a thread, so that nobody else's stream waits."""
UNREADABLE = "the upstream's answer has a form that cannot be read"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readers:
    """How a protocol's answers are read into a Reply."""

    event: Callable[[Reply, Mapping[str, Any]], None]
    """An event of a stream, or a plain body."""
    done: Callable[[Reply], None] = lambda _: None
    """`[DONE]`, where a protocol's streams end with it."""


class Recording:
    """Takes in what the upstream answers, and stores it once."""

    def __init__(self, store: Store, placed: Placed, readers: Readers, longest: int) -> None:
        """Bodies and single events of more than `longest` bytes should not be given to it."""
        self.longest = longest
        self.is_unreadable = False
        """Something was said that could not be taken in; the turn is stored as aborted."""
        self._store = store
        self._placed = placed
        self._turn_ids = [new_id("turn") for _ in range(placed.request.choices)]  # one for each choice
        self._readers = readers
        self._reply = Reply(placed.request.choices)
        self._done = False  # a stream said itself that it is
        self._storing: asyncio.Task[None] | None = None
        self._usage: Usage | None = None

    @property
    def headers(self) -> Headers:
        """By which a caller can name the turns later."""
        turns = ", ".join(self._turn_ids)
        return [("x-session-id", self._placed.session_id), ("x-turn-id", turns)]

    async def read(self, text: str) -> None:
        """An event's data, or a plain body. Raises nothing: whatever is said, it is passed on."""
        if text.strip() == "[DONE]":
            self._done = True
            self._readers.done(self._reply)
            return
        try:
            said = json.loads(text) if len(text) < LARGE_BODY else await to_thread.run_sync(json.loads, text)
        except (ValueError, RecursionError):
            return  # no event of any protocol, but some server's way to stay alive
        try:
            if isinstance(said, dict):
                self._readers.event(self._reply, said)
        except Exception as error:  # noqa: BLE001 - whatever another server sends, only the record suffers
            self._cannot_read(error)

    async def keep_if_whole(self) -> None:
        """Store the turns once all have come to their end, and later what is said of usage after that.

        Raises whatever the store does.
        """
        if self._storing is None:
            if self._done or self._reply.is_whole:
                await self.end()
        elif self._reply.usage is not None and self._reply.usage != self._usage:
            self._usage = self._reply.usage
            await to_thread.run_sync(self._store.recordings.set_usage, self._turn_ids[0], self._usage)

    async def end(self, failure: str = BROKE_OFF) -> None:
        """Nothing more comes: what is not whole is stored as aborted, for the reason `failure`.

        Does nothing when all is stored. Raises whatever the store does.
        """
        if self._storing is None:
            self._usage = self._reply.usage
            try:
                turns = self._turns(failure)
            except Exception as error:  # noqa: BLE001 - as above
                self._cannot_read(error)
                self._reply = Reply(len(self._turn_ids))
                turns = self._turns(failure)
            self._storing = asyncio.create_task(to_thread.run_sync(self._record, turns))
        # A request that is cancelled meanwhile must not leave its turn unwritten, nor written twice.
        await asyncio.shield(self._storing)

    def _cannot_read(self, error: Exception) -> None:
        self.is_unreadable = self._storing is None  # what is stored was read
        # Its text could quote the answer.
        log.warning("an answer of the upstream cannot be recorded (%s)", type(error).__name__)

    def _turns(self, failure: str) -> list[Turn]:
        if self.is_unreadable:
            failure = UNREADABLE
        elif self._reply.failed:
            failure = REPORTED_ERROR
        is_sound = not (self.is_unreadable or self._reply.failed)
        # A server may give fewer choices than it was asked for.
        choices = [self._reply.choices[index] for index in sorted(self._reply.choices)] or [Choice()]
        return [
            self._turn(turn_id, choice, "" if choice.finish_reason and is_sound else failure)
            for turn_id, choice in zip(self._turn_ids, choices, strict=False)
        ]

    def _turn(self, turn_id: str, choice: Choice, failure: str) -> Turn:
        return self._placed.turn(
            turn_id,
            choice.message,
            failure,
            model=self._reply.model or self._placed.request.model,
            policy_version=OTHER_MODEL,
            sampling=Sampling(),  # how the upstream draws is not known
            finish_reason=choice.finish_reason,
        )

    def _record(self, turns: list[Turn]) -> None:
        self._store.recordings.add(turns, self._reply.response_id, self._usage)
        self._placed.close_if_done(self._store.conversations)
