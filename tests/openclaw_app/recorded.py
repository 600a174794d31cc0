"""What our server has on record of a conversation: its turns as `/v1/admin/turns` and the store tell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from openclaw_rl.model import Judgement, Message, Turn
from openclaw_rl.policy.chat_template import text_of
from openclaw_rl.store import Store

INTERNAL_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"


def is_injected(message: Message) -> bool:
    """Whether OpenClaw wrote a message to itself: what runs just now, in a user's name."""
    return message["role"] == "user" and text_of(message["content"]).startswith(INTERNAL_CONTEXT)


@dataclass(frozen=True)
class Record:
    """A turn: how the server lists it, what it consists of, what followed it, and the verdict on that."""

    listed: dict[str, Any]
    turn: Turn
    next_messages: list[Message]
    judgement: Judgement | None

    @property
    def last(self) -> Message:
        """The last message before the reply that OpenClaw did not inject."""
        return next(message for message in reversed(self.turn.messages) if not is_injected(message))

    @property
    def asked(self) -> str:
        """What that message says."""
        return text_of(self.last["content"])

    @property
    def called(self) -> str | None:
        """The tool that the reply called, if it did."""
        calls = self.turn.reply.get("tool_calls")
        return calls[0]["function"]["name"] if calls else None


class Records:
    """The turns that were recorded since this was made."""

    def __init__(self, http: httpx2.Client, store: Store) -> None:
        self._http = http
        self._store = store
        self._before = {listed["turn_id"] for listed in self._listed()}

    def of_kind(self, kind: str) -> list[Record]:
        """Those of main or side, in the order in which they were made."""
        return [record for record in self.all() if record.listed["kind"] == kind]

    def all(self) -> list[Record]:
        new = [listed for listed in self._listed() if listed["turn_id"] not in self._before]
        return [self._record(listed) for listed in sorted(new, key=lambda listed: listed["created_at"])]

    def of(self, record: Record) -> Record:
        """The same turn as it is now."""
        return next(now for now in self.all() if now.turn.id == record.turn.id)

    def _listed(self) -> list[dict[str, Any]]:
        body = self._http.get("/v1/admin/turns", params={"limit": 1000}).json()
        assert not body["has_more"]
        listed: list[dict[str, Any]] = body["data"]
        return listed

    def _record(self, listed: dict[str, Any]) -> Record:
        turn = self._store.conversations.turn(listed["turn_id"])
        assert turn is not None
        states = self._store.conversations.next_states(turn.id)
        judgements = self._store.learning.judgements(turn.id)
        messages = [message for state in states for message in state.messages]
        return Record(listed, turn, messages, judgements[-1] if judgements else None)
