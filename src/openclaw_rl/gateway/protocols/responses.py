"""OpenAI's Responses: what `POST /v1/responses` may be sent, and what it says in OpenAI's chat form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from openclaw_rl.gateway.bodies import FIRST_FAULT, Body, SessionFields
from openclaw_rl.gateway.completion_request import (
    MAX_MESSAGES,
    MAX_TOP_LOGPROBS,
    CompletionRequest,
    function_tool,
)
from openclaw_rl.gateway.demands import Mode, format_asked, listed, mode_of, offered, one_form, unknown_choice
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.model import Message, Tool, Turn

INSTRUCTIONS = "instructions"
"""The name of the system message that a request's instructions become; the next request has its own."""

LOGPROBS = "message.output_text.logprobs"
"""What `include` names the log-probs of the sampled tokens."""

Text = str | Annotated[list[str | dict[str, Any]], FIRST_FAULT]


class Item(Body):
    """An input item of any kind; which fields it needs is checked when it is read."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Text | None = None
    summary: Annotated[list[dict[str, Any]], FIRST_FAULT] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Text | None = None


class ResponsesTool(Body):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def is_function(self) -> bool:
        return self.type == "function"

    @property
    def tool(self) -> Tool:
        return function_tool(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            strict=self.strict,
        )


class ResponsesRequest(SessionFields):
    model: str
    input: str | Annotated[list[Item], Field(min_length=1, max_length=MAX_MESSAGES), FIRST_FAULT]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    prompt: dict[str, Any] | None = None
    tools: Annotated[list[ResponsesTool], FIRST_FAULT] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    include: Annotated[list[str], FIRST_FAULT] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None

    def request(self, body: Mapping[str, Any], previous: Turn | None) -> CompletionRequest:
        """What `body`, from which this was made, asks for; `previous` is the turn it says it continues.

        Raises ApiError for what we would otherwise have to answer wrongly.
        """
        self._refuse_unsupported()
        tools = self.tools or []
        for position, tool in enumerate(tools):
            if tool.is_function and not tool.name:
                raise bad_request(f"tools.{position}.name: Field required", f"tools.{position}.name")
        others = [f"tools of type {tool.type}" for tool in tools if not tool.is_function]
        mode, names = _choice(self.tool_choice)
        offer, must_call = offered([tool.tool for tool in tools if tool.is_function], mode, names)
        in_metadata = (self.metadata or {}).get("session_id")
        return CompletionRequest(
            model=self.model,
            messages=tuple(self._messages(previous)),
            tools=offer,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_output_tokens,
            one_call=self.parallel_tool_calls is False,
            must_call=must_call,
            form=one_form([format_asked(self._format, "text.format", "text.format.schema")], must_call),
            logprobs=LOGPROBS in (self.include or ()) or bool(self.top_logprobs),
            top_logprobs=self.top_logprobs or 0,
            stream=bool(self.stream),
            session_names=(
                self.session_id,
                previous.session_id if previous else None,
                self.prompt_cache_key,
                in_metadata if isinstance(in_metadata, str) else None,
            ),
            person=self.user or "",
            continues=previous.id if previous else None,
            turn_type=self.turn_type,
            session_done=self.session_done,
            ignored=(*self.ignored_fields(body), *others, *self._not_included),
        )

    @property
    def echo(self) -> dict[str, Any]:
        """What a response repeats of its request."""
        return {
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "tools": [tool.model_dump() for tool in self.tools or () if tool.is_function],
            "tool_choice": self.tool_choice or "auto",
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "text": {"format": self._format or {"type": "text"}},
            "top_logprobs": self.top_logprobs or 0,
            "truncation": "disabled",
        }

    @property
    def _format(self) -> dict[str, Any] | None:
        given = (self.text or {}).get("format")
        return given if isinstance(given, dict) else None

    @property
    def _not_included(self) -> list[str]:
        return [f"include {name}" for name in self.include or () if name != LOGPROBS]

    def _messages(self, previous: Turn | None) -> list[Message]:
        messages: list[Message] = []
        if self.instructions:
            messages.append({"role": "system", "name": INSTRUCTIONS, "content": self.instructions})
        if previous:
            kept = [message for message in previous.messages if not _is_instructions(message)]
            messages += [*kept, previous.reply]
        if isinstance(self.input, str):
            return [*messages, {"role": "user", "content": self.input}]
        return messages + chat_messages(self.input)

    def _refuse_unsupported(self) -> None:
        for field, instead in (
            ("background", "wait for the response, or stream it"),
            ("conversation", "send previous_response_id, or the whole conversation as input"),
            ("prompt", "send its text as instructions"),
        ):
            if getattr(self, field):
                raise bad_request(f"{field}: not supported here; {instead}", field)


def _choice(choice: str | dict[str, Any] | None) -> tuple[Mode, list[str] | None]:
    """What a tool choice asks for, and the tools that it names."""
    if not isinstance(choice, dict):
        return mode_of(choice), None
    if choice.get("type") == "function":
        return "required", [_name(choice)]
    if choice.get("type") == "allowed_tools":
        return mode_of(choice.get("mode")), [_name(tool) for tool in listed(choice.get("tools"))]
    raise unknown_choice(choice)


def _name(named: Any) -> str:
    if not (isinstance(named, dict) and isinstance(named.get("name"), str)):
        raise unknown_choice(named)
    name: str = named["name"]
    return name


def chat_messages(items: Sequence[Item]) -> list[Message]:
    """Items as messages. What the assistant thought, said and called in one reply is one message again."""
    messages: list[Message] = []
    reply: Message | None = None
    for position, item in enumerate(items):
        if item.type == "message" and item.role == "assistant":
            text = _joined(item.content)
            if reply is None or (reply["content"] and "tool_calls" not in reply):
                messages.append(reply := _new_reply())
            reply["content"] += text
        elif item.type == "reasoning":
            if reply is None or reply["content"] or "tool_calls" in reply:
                messages.append(reply := _new_reply())
            thought = _joined(item.content) or _joined(item.summary)
            reply["reasoning_content"] = reply.get("reasoning_content", "") + thought
        elif item.type == "function_call":
            if reply is None:
                messages.append(reply := _new_reply())
            function = {"name": item.name, "arguments": item.arguments}
            calls = reply.setdefault("tool_calls", [])
            calls.append({"id": item.call_id or "", "type": "function", "function": function})
        else:
            reply = None
            messages.append(_other(item, f"input.{position}"))
    return messages


def _new_reply() -> Message:
    return {"role": "assistant", "content": ""}


def _other(item: Item, place: str) -> Message:
    if item.type == "function_call_output":
        return {"role": "tool", "tool_call_id": item.call_id or "", "content": item.output or ""}
    if item.type != "message":
        raise bad_request(f"{place}: items of type {item.type!r} cannot be read here", f"{place}.type")
    if item.role is None:
        raise bad_request(f"{place}.role: Field required", f"{place}.role")
    return {"role": item.role, "content": item.content}


def _joined(content: str | Iterable[str | dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part if isinstance(part, str) else part.get("text") or part.get("refusal") for part in content]
    return "".join(text for text in texts if isinstance(text, str))


def _is_instructions(message: Message) -> bool:
    """Whether `message` holds the instructions of an earlier response, which are not carried over."""
    return message.get("role") == "system" and message.get("name") == INSTRUCTIONS
