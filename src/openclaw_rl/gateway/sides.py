"""Main line or side: whether a request belongs to the conversation, and why we think so.

What the client says wins; else the texts that helper calls are known by; else main, so that a client
that says nothing is learned from. Knows no session and no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.gateway import openclaw
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.gateway.helpers import helper_call
from openclaw_rl.model import Message, TurnKind
from openclaw_rl.policy.chat_template import text_of
from openclaw_rl.wrappings import is_injected

HEADER = "X-Turn-Type"
PINNED = "asked for a pinned version"


def stated_kind(headers: Mapping[str, str], body_value: str | None) -> TurnKind | None:
    """What the client itself says, in the header or else the body; raises ApiError for a wrong word."""
    for value, field in ((headers.get(HEADER), HEADER), (body_value, "turn_type")):
        if value:
            try:
                return TurnKind(value.strip().lower())
            except ValueError:
                raise bad_request(f"{field} must be main or side", field) from None
    return None


def classify(
    request: CompletionRequest, stated: TurnKind | None, *, pinned: bool = False
) -> tuple[TurnKind, str]:
    """The kind of a request and the reason for it."""
    if pinned:
        return TurnKind.SIDE, PINNED
    if stated is not None:
        return stated, f"the client said {stated.value}"
    helper = _of_openclaw(request.messages)
    if helper is not None:
        return TurnKind.SIDE, f"recognised as OpenClaw's {helper}"
    helper = helper_call(request.messages, request.max_tokens, has_tools=bool(request.tools))
    if helper is not None:
        return TurnKind.SIDE, f"recognised as a helper call: {helper}"
    return TurnKind.MAIN, "nothing marks it as a helper call"


def _of_openclaw(messages: Sequence[Message]) -> str | None:
    system = [text_of(message.get("content")) for message in messages if message["role"] in _SYSTEM]
    users = [text_of(message.get("content")) for message in messages if message["role"] == "user"]
    stamped = openclaw.stamps_people(users)
    people = [text for text in users if not is_injected(text)]
    found = (
        *(openclaw.helper_system_prompt(text) for text in system[:1]),
        *(openclaw.unattended_session(text) for text in people),
        *(openclaw.unattended_message(text, stamped=stamped) for text in people[-1:]),
    )
    return next((kind for kind in found if kind is not None), None)


_SYSTEM = ("system", "developer")
