"""Conversations of one simulated user over HTTP: several at a time, each until pleased or tired.

Counts what a user would feel: turns, sessions, and which first replies pleased. Knows no store and no
update.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from openclaw_rl.evals.client import ChatClient
from openclaw_rl.evals.personalise.memory import Memory
from openclaw_rl.evals.personalise.user import User
from openclaw_rl.model import Message

TRIES = 2
"""Replies to one question that the user reads before giving up."""

MOST_SESSIONS = 72
"""Of which the first three pleasing first replies in a row are looked for."""

IN_A_ROW = 3


class Conversations:
    """What was said so far, and the next one."""

    def __init__(
        self,
        client: ChatClient,
        model: str,
        user: User,
        memory: Memory | None,
        max_tokens: int,
        may_talk: asyncio.Event,
    ) -> None:
        """With a `memory` its notes go before each conversation. Nothing is said until `may_talk`."""
        self._client = client
        self._model = model
        self._user = user
        self._memory = memory
        self._max_tokens = max_tokens
        self._may_talk = may_talk
        self._first: list[bool | None] = []
        self.turns = 0
        self.moods: Counter[str] = Counter()
        self.said: dict[str, str] = {}
        """The mood behind all words that were said."""

    async def converse(self) -> None:
        """A question, replies and what the user says to them. Raises httpx2.HTTPError."""
        await self._may_talk.wait()
        number = len(self._first)
        self._first.append(None)
        session = f"talk-{time.time_ns()}-{number}"
        question = self._user.next_question()
        notes = self._memory.system_prompt if self._memory else ""
        messages: list[Message] = [{"role": "system", "content": notes}] if notes else []
        messages.append({"role": "user", "content": question})
        for attempt in range(TRIES):
            if attempt:
                await self._may_talk.wait()
            reply = await self._client.ask(
                self._model, messages, session=session, max_tokens=self._max_tokens
            )
            reaction = self._user.react(question, reply.text, finished=reply.finished)
            self.turns += 1
            self.moods[reaction.mood] += 1
            self.said[reaction.words] = reaction.mood
            if attempt == 0:
                self._first[number] = reaction.mood == "pleased"
            if self._memory:
                self._memory.note(reaction.words, question, reply.text)
            messages += [
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": reaction.words},
            ]
            if reaction.mood == "pleased":
                break
        # The reply to the last word is read by nobody and judged by nobody.
        await self._client.ask(self._model, messages, session=session, max_tokens=1, last=True)

    @property
    def first_replies(self) -> str:
        """One character a session, in the order in which they began: 1 pleased, 0 not, ? never heard of."""
        return "".join("?" if one is None else str(int(one)) for one in self._first)


def sessions_until_pleased(first_replies: str) -> int | None:
    """Sessions up to three pleasing first replies in a row; None when 72 were not enough."""
    place = first_replies[:MOST_SESSIONS].find("1" * IN_A_ROW)
    return None if place < 0 else place + IN_A_ROW
