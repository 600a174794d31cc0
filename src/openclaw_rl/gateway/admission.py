"""From a request to running turns: checked, rendered, placed, paired, admitted to the engine.

Everything that can be refused is refused here, before the first byte of an answer. What the request says
about earlier turns is recorded before its own reply is told, so that judging starts at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from anyio import to_thread
from starlette.requests import ClientDisconnect

from openclaw_rl.gateway import models, sides
from openclaw_rl.gateway.completion import Plan, RunningTurn
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.constraint import grammar_for
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.gateway.placement import place
from openclaw_rl.gateway.service import Service
from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.chat_template import ChatTemplate, ChatTemplateError
from openclaw_rl.policy.engine import Generation, PromptTooLongError
from openclaw_rl.policy.reply import opens_thought
from openclaw_rl.store import new_id


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: tuple[int, ...]
    inside_thought: bool
    is_whole: bool = True
    """False for the beginning of a text that is far too long."""


async def admit(
    service: Service,
    tenant: str,
    headers: Mapping[str, str],
    request: CompletionRequest,
    left: Callable[[], Awaitable[bool]],
) -> list[RunningTurn]:
    """Start the turns that a request asks for, one for each choice; `left` says if its client has gone.

    Raises ApiError or EngineError when it is refused.
    """
    arrived = time.time()
    service.count_ignored(request.ignored)
    stated = sides.stated_kind(headers, request.turn_type)
    pinned = await models.pinned_version(service, request.model)
    most = service.engine.context_length
    prompt = await to_thread.run_sync(read_prompt, service.template, request, most)
    grammar = await grammar_for(service, request, inside_thought=prompt.inside_thought)
    # Placing waits for the disk, so the engine begins meanwhile. Whatever comes of the request, what it says
    # about earlier turns is recorded.
    placing = asyncio.create_task(
        to_thread.run_sync(
            lambda: place(
                service.sessions,
                tenant,
                headers,
                request,
                stated=stated,
                arrived=arrived,
                pinned=pinned is not None,
            )
        )
    )
    try:
        generations, samplings = await _begin(service, request, prompt, grammar.text, pinned, left)
    finally:
        await asyncio.wait({placing})
    with ExitStack() as unwind:
        for generation in generations:
            unwind.callback(generation.cancel)
        placed = placing.result()
        unwind.pop_all()
    return [
        service.run(
            Plan(new_id("turn"), placed, prompt.token_ids, prompt.inside_thought, sampling),
            generation,
        )
        for generation, sampling in zip(generations, samplings, strict=True)
    ]


async def _begin(
    service: Service,
    request: CompletionRequest,
    prompt: Prompt,
    grammar: str,
    pinned: PolicyVersion | None,
    left: Callable[[], Awaitable[bool]],
) -> tuple[list[Generation], list[Sampling]]:
    """Have the engine take the request, once it has room for it."""
    context_length = service.engine.context_length
    room = context_length - len(prompt.token_ids)
    if room < 1:
        raise PromptTooLongError(len(prompt.token_ids), context_length, at_least=not prompt.is_whole)
    samplings = [
        request.sampling(service.settings.sampling, room, choice, grammar)
        for choice in range(request.choices)
    ]
    samplings = [
        replace(sampling, unlearnable=service.engine.unlearnable(sampling)) for sampling in samplings
    ]

    async def enter() -> list[Generation]:
        return await _generate_all(service, prompt.token_ids, samplings, pinned)

    generations = await service.back_pressure.admit(enter, left)
    if generations is None:
        raise ClientDisconnect
    return generations, samplings


async def _generate_all(
    service: Service,
    prompt_ids: tuple[int, ...],
    samplings: list[Sampling],
    pinned: PolicyVersion | None,
) -> list[Generation]:
    """One generation for each choice, or none of them."""
    with ExitStack() as unwind:
        generations: list[Generation] = []
        for sampling in samplings:
            generation = await models.generate(service, prompt_ids, sampling, pinned)
            unwind.callback(generation.cancel)
            generations.append(generation)
        unwind.pop_all()
    return generations


def read_prompt(template: ChatTemplate, request: CompletionRequest, most: int) -> Prompt:
    """The prompt of a request, encoded whole unless it is far longer than `most` tokens."""
    try:
        text = template.render(request.messages, request.tools)
        token_ids, is_whole = template.encode(text, most)
    except ChatTemplateError as error:
        raise bad_request(str(error), "messages") from None
    except (TypeError, ValueError, RecursionError):
        # Arguments are JSON inside a string, which the check of the body cannot see into: they can be
        # nested without end or hold half a surrogate pair.
        raise bad_request("messages: the arguments of a tool call cannot be read", "messages") from None
    return Prompt(token_ids, opens_thought(text), is_whole)
