"""A request that has its place: main or side, in which session, and after which turn.

The same for replies that the policy makes and for those that another server makes. What the request says
about earlier turns is recorded by placing it. Knows neither how a reply is made nor how it is delivered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_rl.gateway import sides
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.gateway.sessions import Sessions, conversation_of, is_done, stated_session
from openclaw_rl.model import Message, Sampling, Turn, TurnKind, TurnState
from openclaw_rl.store.conversations import Conversations

ABORTED = "aborted"
"""The finish reason of a reply that has no end."""
_DONE = "the client said that it is done"


@dataclass(frozen=True, slots=True)
class Placed:
    """All that is known of a request before its reply begins."""

    request: CompletionRequest
    conversation: Conversation
    kind: TurnKind
    kind_reason: str
    session_id: str
    parent_id: str | None
    closes_session: bool
    arrived: float

    def turn(
        self,
        turn_id: str,
        reply: Message,
        failure: str,
        *,
        record: Message | None = None,
        model: str,
        policy_version: int,
        sampling: Sampling,
        finish_reason: str,
        prompt_ids: tuple[int, ...] = (),
        response_ids: tuple[int, ...] = (),
        logprobs: tuple[float, ...] = (),
    ) -> Turn:
        """The turn as it is stored now that its reply has ended; `failure` says why it has no proper end.

        `record` is what is stored of `reply` where that is more than clients send back.
        """
        delivered = TurnState.SIDE if self.kind is TurnKind.SIDE else TurnState.WAITING_NEXT_STATE
        return Turn(
            id=turn_id,
            session_id=self.session_id,
            parent_id=self.parent_id,
            kind=self.kind,
            kind_reason=self.kind_reason,
            state=TurnState.ABORTED if failure else delivered,
            state_reason=failure,
            model=model,
            policy_version=policy_version,
            messages=self.request.messages,
            tools=self.request.tools,
            reply=record or reply,
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            logprobs=logprobs,
            sampling=sampling,
            finish_reason=ABORTED if failure else finish_reason,
            created_at=self.arrived,
            finished_at=time.time(),
            conversation_hash=self.conversation.hash_with(reply),
            request_hash=self.conversation.request_hash,
            reply_hash=self.conversation.reply_hash(reply),
        )

    def close_if_done(self, conversations: Conversations) -> None:
        """End the session where the client said that this turn is its last."""
        if self.closes_session:
            conversations.close_session(self.session_id, _DONE)


def place(
    sessions: Sessions,
    tenant: str,
    headers: Mapping[str, str],
    request: CompletionRequest,
    *,
    stated: TurnKind | None,
    arrived: float,
    pinned: bool = False,
) -> Placed:
    """Find the request's session and pair it with the turns before it. Blocks on the store.

    `stated` is the kind that the client says, `pinned` that it asked for one policy version.
    """
    conversation = conversation_of(headers, request)
    kind, kind_reason = sides.classify(request, stated, pinned=pinned)
    found = sessions.place(conversation, kind, tenant, stated_session(headers, request), request.continues)
    return Placed(
        request,
        conversation,
        kind,
        kind_reason,
        found.session_id,
        found.parent_id,
        is_done(headers, request),
        arrived,
    )
