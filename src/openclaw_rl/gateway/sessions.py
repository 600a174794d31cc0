"""Which session and which earlier turn a request belongs to.

First what the client says, by any of the names that clients use; else the longest conversation of the
tenant that the request continues; else a new session. Knows no HTTP beyond the names of the headers.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.gateway.pairing import Pairing
from openclaw_rl.gateway.recognition import ENOUGH, find_altered, find_moved
from openclaw_rl.model import Turn, TurnKind, TurnState
from openclaw_rl.store import new_id
from openclaw_rl.store.continuations import Continuations, PlacedTurn
from openclaw_rl.store.conversations import Conversations

SESSION_HEADERS = ("X-Session-Id", "x-session-affinity", "session_id")
DONE_HEADER = "X-Session-Done"
_RESPONSE_PREFIXES = re.compile("^(chatcmpl-|msg_|resp_)")
_OWN_FORM = re.compile(r"sess_[0-9a-f]{24}")
_TRUE = frozenset({"1", "true", "yes", "on"})
_PREFIXES_AT_ONCE = (8, 248)
"""Prefixes looked up together after the longest: few at first, then the rest; older ones are not."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request belongs."""

    session_id: str
    parent_id: str | None


def stated_session(headers: Mapping[str, str], request: CompletionRequest) -> str | None:
    """The session as the client names it, if it does."""
    named = (*(headers.get(name) for name in SESSION_HEADERS), *request.session_names)
    return next((name.strip() for name in named if name and name.strip()), None)


def conversation_of(headers: Mapping[str, str], request: CompletionRequest) -> Conversation:
    """What of a request is compared. A named session is one person's, so there it does not matter whose."""
    person = "" if stated_session(headers, request) else request.person
    return Conversation.of(request.messages, person)


def is_done(headers: Mapping[str, str], request: CompletionRequest) -> bool:
    """Whether the client says that the session ends with this turn."""
    said = headers.get(DONE_HEADER) or request.session_done
    return str(said).strip().lower() in _TRUE


class Sessions:
    """The store's sessions, as requests find them. Every method blocks on the store."""

    def __init__(self, conversations: Conversations, continuations: Continuations) -> None:
        self._conversations = conversations
        self._continuations = continuations
        self._pairing = Pairing(conversations, continuations)
        self._one_at_a_time = threading.Lock()

    def internal_id(self, tenant: str, stated: str) -> str:
        """Our id of the session that a client names; the client's own is kept nowhere.

        An id that we gave this tenant ourselves is taken as it is.
        """
        if _OWN_FORM.fullmatch(stated):
            found = self._conversations.session(stated)
            if found is not None and found.tenant == tenant:
                return stated
        return f"sess_{hashlib.sha256((tenant + stated).encode()).hexdigest()[:24]}"

    def turn_of(self, response_id: str, tenant: str) -> Turn | None:
        """The tenant's turn that made a response, by the response's id in any protocol."""
        turn = self._conversations.turn(_RESPONSE_PREFIXES.sub("", response_id))
        if turn is None:
            return self._conversations.recorded(response_id, tenant)
        session = self._conversations.session(turn.session_id)
        return turn if session is not None and session.tenant == tenant else None

    def answered(self, response_id: str, tenant: str) -> Turn | None:
        """The same, if its reply came to its end."""
        turn = self.turn_of(response_id, tenant)
        return None if turn is None or turn.state is TurnState.ABORTED else turn

    def place(
        self,
        conversation: Conversation,
        kind: TurnKind,
        tenant: str,
        stated: str | None = None,
        continues: str | None = None,
    ) -> Place:
        """Find or open the request's session and, for a main request, pair it with the turns before it.

        `stated` is the session and `continues` the turn that the client says it belongs to.
        """
        named = self.internal_id(tenant, stated) if stated else None
        # Two requests that arrive together must not both become the next state of one turn.
        with self._one_at_a_time:
            parent, length = self._said_to_continue(conversation, continues)
            if parent is None:
                parent, length = self._continued(conversation, tenant, named)
            session_id = named or (parent.session_id if parent else new_id("sess"))
            self._conversations.open_session(session_id, tenant)
            if kind is TurnKind.MAIN:
                self._pairing.pair(conversation, session_id, parent, length, may_be_edit=continues is None)
        return Place(session_id, parent.id if parent else None)

    def _said_to_continue(
        self, conversation: Conversation, turn_id: str | None
    ) -> tuple[PlacedTurn | None, int]:
        """The turn that the client names, and how many messages the conversation had with its reply."""
        turn = self._continuations.named(turn_id) if turn_id else None
        lengths = dict(conversation.continuations()) if turn else {}
        if turn is None or turn.conversation_hash not in lengths:
            return None, 0
        return turn, lengths[turn.conversation_hash]

    def _continued(
        self, conversation: Conversation, tenant: str, session_id: str | None
    ) -> tuple[PlacedTurn | None, int]:
        """The turn that the request continues, and how many messages it had with its reply."""
        prefixes = conversation.continuations()
        for prefix_hash, length in islice(prefixes, 1):
            found = self._continuations.continued([prefix_hash], tenant, session_id)
            for find in (find_altered, find_moved):
                found = found or find(self._continuations, conversation, length, tenant, session_id)
            if found is None and session_id is not None:
                # The client may have given the session a new name, as it does when it shortens the history.
                elsewhere = find_moved(self._continuations, conversation, length, tenant, least_before=ENOUGH)
                found = elsewhere if elsewhere and elsewhere.is_waiting else None
            if found is not None:
                return found, length
        # A few at first: the newest reply is another's, and the conversation may be long.
        for number in _PREFIXES_AT_ONCE:
            batch = dict(islice(prefixes, number))
            found = self._continuations.continued(list(batch), tenant, session_id)
            if found is not None:
                return found, batch[found.conversation_hash]
        return None, 0
