"""The routes of the policy: each reads its request, has the work done elsewhere and answers.

Decides nothing about turns. Blocking work goes to threads. What every gateway answers is in `common_routes`.
"""

from __future__ import annotations

from collections.abc import Callable

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from openclaw_rl.gateway import models
from openclaw_rl.gateway.admission import admit, read_prompt
from openclaw_rl.gateway.answer import Answer, Head
from openclaw_rl.gateway.common_routes import Tenant, read
from openclaw_rl.gateway.completion_request import CompletionRequest
from openclaw_rl.gateway.delivery import Delivery
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.gateway.openapi import takes
from openclaw_rl.gateway.protocols.chat import ChatRequest
from openclaw_rl.gateway.protocols.chat_answer import ChatAnswer
from openclaw_rl.gateway.protocols.messages import MessagesRequest, PromptFields
from openclaw_rl.gateway.protocols.messages_answer import MessagesAnswer
from openclaw_rl.gateway.protocols.responses import ResponsesRequest
from openclaw_rl.gateway.protocols.responses_answer import ResponsesAnswer
from openclaw_rl.gateway.service import Service
from openclaw_rl.policy.engine import PromptTooLongError

router = APIRouter()


def service_of(request: Request) -> Service:
    service: Service = request.app.state.gateway
    return service


@router.post("/v1/chat/completions", openapi_extra=takes(ChatRequest, streams=True))
async def chat_completions(request: Request, tenant: Tenant) -> Response:
    """OpenAI's Chat Completions."""
    body, chat = await read(request, ChatRequest)
    asked = await to_thread.run_sync(chat.request, body)
    return await _answer(request, tenant, asked, lambda head: ChatAnswer(head, asked.choices))


@router.post("/v1/messages", openapi_extra=takes(MessagesRequest, streams=True))
async def messages(request: Request, tenant: Tenant) -> Response:
    """Anthropic's Messages."""
    body, given = await read(request, MessagesRequest)
    asked = await to_thread.run_sync(given.request, body)
    return await _answer(request, tenant, asked, MessagesAnswer)


@router.post("/v1/messages/count_tokens", openapi_extra=takes(PromptFields))
async def count_tokens(request: Request, _: Tenant) -> Response:
    """How long the prompt of such a request would be; nothing is sampled or stored."""
    body, given = await read(request, PromptFields)
    service = service_of(request)
    asked = await to_thread.run_sync(given.request, body)
    await models.pinned_version(service, asked.model)
    most = service.engine.context_length
    prompt = await to_thread.run_sync(read_prompt, service.template, asked, most)
    if not prompt.is_whole:
        raise PromptTooLongError(len(prompt.token_ids), most, at_least=True)
    return JSONResponse({"input_tokens": len(prompt.token_ids)})


@router.post("/v1/responses", openapi_extra=takes(ResponsesRequest, streams=True))
async def responses(request: Request, tenant: Tenant) -> Response:
    """OpenAI's Responses."""
    body, given = await read(request, ResponsesRequest)
    previous = None
    if given.previous_response_id is not None:
        answered = service_of(request).sessions.answered
        previous = await to_thread.run_sync(answered, given.previous_response_id, tenant)
        if previous is None:
            raise bad_request(
                f"There is no response {given.previous_response_id!r} that could be continued.",
                "previous_response_id",
                "previous_response_not_found",
            )
    asked = await to_thread.run_sync(given.request, body, previous)
    return await _answer(request, tenant, asked, lambda head: ResponsesAnswer(head, given.echo))


async def _answer(
    request: Request, tenant: str, asked: CompletionRequest, form: Callable[[Head], Answer]
) -> Response:
    """Start what was asked for, whatever the protocol, and deliver it in `form`."""
    choices = await admit(service_of(request), tenant, request.headers, asked, request.is_disconnected)
    plan = choices[0].plan
    headers = {
        "X-Session-Id": plan.placed.session_id,
        "X-Turn-Id": ", ".join(running.plan.turn_id for running in choices),
        "X-Policy-Version": str(choices[0].version),
    }
    head = Head.of(choices[0], logprobs=asked.logprobs)
    return Delivery(choices, form(head), stream=asked.stream, headers=headers)


@router.get("/v1/models")
async def list_models(request: Request, _: Tenant) -> Response:
    """The policy, with its context window and the version that serves."""
    service = service_of(request)
    shown = await models.listing(service, service.settings.served_name)
    return JSONResponse({"object": "list", "data": [shown]})


@router.get("/v1/models/{model:path}")
async def show_model(model: str, request: Request, _: Tenant) -> Response:
    """The policy, or one version of it."""
    return JSONResponse(await models.listing(service_of(request), model))
