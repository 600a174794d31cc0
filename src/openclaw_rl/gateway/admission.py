"""From a chat request to a running turn: checked, rendered, placed, paired, admitted to the engine.

Everything that can be refused is refused here, before the first byte of an answer. What the request says
about earlier turns is recorded before its own reply is sampled, so that judging starts at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from anyio import to_thread

from openclaw_rl.gateway import models, protocol, sides
from openclaw_rl.gateway.completion import Plan, RunningTurn
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.gateway.normalise import Conversation
from openclaw_rl.gateway.service import Service
from openclaw_rl.gateway.sessions import is_done, stated_session
from openclaw_rl.model import Message, Tool
from openclaw_rl.policy.chat_template import ChatTemplate, ChatTemplateError
from openclaw_rl.store import new_id


async def admit(
    service: Service,
    tenant: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    request: protocol.ChatRequest,
) -> RunningTurn:
    """Start the turn that a request asks for; raises ApiError or EngineError when it is refused.

    `request` is `body`, validated.
    """
    arrived = time.time()
    request.refuse_unsupported()
    stated = sides.stated_kind(headers, request.turn_type)
    pinned = await models.pinned_version(service, request.model)
    messages, tools = protocol.messages_of(body), protocol.tools_of(body, request)
    prompt_ids = await to_thread.run_sync(_prompt_ids, service.template, messages, tools)

    kind, kind_reason = sides.classify(messages, stated, pinned=pinned is not None)
    conversation = Conversation.of(messages)
    place = await to_thread.run_sync(
        service.sessions.place, conversation, kind, tenant, stated_session(headers, request)
    )
    sampling = request.sampling(service.settings.sampling, service.engine.context_length)
    generation = await models.generate(service, prompt_ids, sampling, pinned)
    plan = Plan(
        turn_id=new_id("turn"),
        session_id=place.session_id,
        parent_id=place.parent_id,
        kind=kind,
        kind_reason=kind_reason,
        model=request.model,
        messages=tuple(messages),
        tools=tuple(tools),
        conversation=conversation,
        prompt_ids=prompt_ids,
        sampling=sampling,
        closes_session=is_done(headers, request),
        created_at=arrived,
    )
    return service.run(plan, generation)


def _prompt_ids(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool]
) -> tuple[int, ...]:
    try:
        return template.prompt_ids(messages, tools)
    except ChatTemplateError as error:
        raise bad_request(str(error), "messages") from None
    except (TypeError, ValueError, RecursionError):
        # Arguments are JSON inside a string, which the check of the body cannot see into: they can be
        # nested without end or hold half a surrogate pair.
        raise bad_request("messages: the arguments of a tool call cannot be read", "messages") from None
