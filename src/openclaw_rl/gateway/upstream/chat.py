"""Chat Completions passing by: what a request says that is recorded, and what answers say.

The upstream judges requests; here only what a turn is made of is read, so that a field which our own
server refuses does not keep a turn from being recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openclaw_rl.gateway.bodies import validate
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.protocols.chat import ChatRequest
from openclaw_rl.gateway.upstream.media import message_in_words
from openclaw_rl.gateway.upstream.reply import Choice, Reply

_READ = frozenset(
    "model messages tools n stream user metadata prompt_cache_key session_id turn_type session_done".split()
)


def read_request(body: Mapping[str, Any]) -> CompletionRequest:
    """Raises ApiError when it cannot be read."""
    read = {name: value for name, value in body.items() if name in _READ}
    if isinstance(read.get("messages"), list):
        read["messages"] = [message_in_words(message) for message in read["messages"]]
    return validate(ChatRequest, read).request(read)


def read_event(reply: Reply, event: Mapping[str, Any]) -> None:
    """A chunk of a stream, or a plain body: they differ in one name."""
    reply.note(event)
    reply.failed = reply.failed or bool(event.get("error"))
    for given in event.get("choices") or ():
        choice = reply.choice(int(given.get("index") or 0))
        _read_message(choice, given.get("delta") or given.get("message") or {})
        choice.finish(given.get("finish_reason"))


def read_done(reply: Reply) -> None:
    """The end of a stream: a server that says no reason has none but that the reply is whole."""
    for choice in reply.choices.values():
        choice.finish_reason = choice.finish_reason or ("" if reply.failed else "stop")


def _read_message(choice: Choice, message: Mapping[str, Any]) -> None:
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and part.get("type") == "thinking":
            for thought in part.get("thinking") or ():
                choice.think(thought.get("text") if isinstance(thought, dict) else thought)
        else:
            choice.say(part.get("text") if isinstance(part, dict) else part)
    choice.say(message.get("refusal"))
    # Two names for one thing; servers that send both mean the same by them.
    choice.think(message.get("reasoning_content") or message.get("reasoning"))
    for position, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        slot = call.get("index", position)
        choice.call(slot, id=call.get("id"), name=function.get("name"), arguments=function.get("arguments"))
