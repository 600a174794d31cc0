"""OpenAI's Chat Completions: what `POST /v1/chat/completions` may be sent.

Messages and tools are checked for their shape but kept as the client sent them. Knows no engine and no
answer; see `chat_answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from openclaw_rl.gateway.bodies import FIRST_FAULT, Body, SessionFields
from openclaw_rl.gateway.completion_request import (
    MAX_CHOICES,
    MAX_MESSAGES,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
    CompletionRequest,
)
from openclaw_rl.gateway.demands import (
    Mode,
    format_asked,
    listed,
    mode_of,
    offered,
    one_form,
    structured_outputs,
    unknown_choice,
)
from openclaw_rl.gateway.errors import bad_request


class FunctionCall(Body):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class RequestedCall(Body):
    function: FunctionCall | None = None


Part = str | dict[str, Any]
Calls = Annotated[list[RequestedCall], FIRST_FAULT]


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], FIRST_FAULT] | None = None
    tool_calls: Calls | None = None


class FunctionDefinition(Body):
    name: str


class FunctionTool(Body):
    function: FunctionDefinition


class OtherTool(Body):
    """A kind of tool that the policy is not offered: it could not be told how to call it."""

    type: str


def is_function(tool: Any) -> bool:
    return not isinstance(tool, dict) or tool.get("type") in (None, "function")


ToolDefinition = Annotated[
    Annotated[FunctionTool, Tag("callable")] | Annotated[OtherTool, Tag("other")],
    Discriminator(lambda tool: "callable" if is_function(tool) else "other"),
]


class ChatRequest(SessionFields):
    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES), FIRST_FAULT]
    tools: Annotated[list[ToolDefinition], FIRST_FAULT] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS), FIRST_FAULT] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63 - MAX_CHOICES)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None

    def request(self, body: Mapping[str, Any]) -> CompletionRequest:
        """What `body`, from which this was made, asks for.

        Raises ApiError for what we would otherwise have to answer wrongly.
        """
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs: send logprobs true with it", "top_logprobs")
        tools = [tool for tool in body.get("tools") or () if is_function(tool)]
        others = [f"tools of type {tool.type}" for tool in self.tools or () if isinstance(tool, OtherTool)]
        mode, names = _choice(self.tool_choice)
        offer, must_call = offered(tools, mode, names)
        forms = (
            format_asked(self.response_format, "response_format", "response_format.json_schema.schema"),
            structured_outputs(self.structured_outputs) if self.structured_outputs else None,
        )
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        in_metadata = (self.metadata or {}).get("session_id")
        return CompletionRequest(
            model=self.model,
            messages=tuple(body["messages"]),
            tools=offer,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=min(limits, default=None),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            seed=self.seed,
            choices=self.n or 1,
            one_call=self.parallel_tool_calls is False,
            must_call=must_call,
            form=one_form(forms, must_call),
            logprobs=bool(self.logprobs),
            top_logprobs=self.top_logprobs or 0,
            stream=bool(self.stream),
            session_names=(
                self.session_id,
                self.prompt_cache_key,
                in_metadata if isinstance(in_metadata, str) else None,
            ),
            person=self.user or "",
            turn_type=self.turn_type,
            session_done=self.session_done,
            ignored=(*self.ignored_fields(body), *others),
        )


def _choice(choice: str | dict[str, Any] | None) -> tuple[Mode, list[str] | None]:
    """What a tool choice asks for, and the tools that it names."""
    if not isinstance(choice, dict):
        return mode_of(choice), None
    if choice.get("type") == "function":
        return "required", [_name(choice)]
    if choice.get("type") == "allowed_tools" and isinstance(allowed := choice.get("allowed_tools"), dict):
        return mode_of(allowed.get("mode")), [_name(tool) for tool in listed(allowed.get("tools"))]
    raise unknown_choice(choice)


def _name(named: Any) -> str:
    function = named.get("function") if isinstance(named, dict) else None
    if not (isinstance(function, dict) and isinstance(function.get("name"), str)):
        raise unknown_choice(named)
    name: str = function["name"]
    return name
