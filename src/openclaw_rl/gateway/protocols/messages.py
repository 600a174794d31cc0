"""Anthropic's Messages: what `POST /v1/messages` may be sent, and what it says in OpenAI's chat form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from openclaw_rl.gateway.bodies import FIRST_FAULT, Body, SessionFields
from openclaw_rl.gateway.completion_request import (
    MAX_MESSAGES,
    MAX_STOPS,
    CompletionRequest,
    function_tool,
)
from openclaw_rl.gateway.demands import Mode, offered, unknown_choice
from openclaw_rl.gateway.errors import bad_request
from openclaw_rl.model import Message, Tool

Text = str | Annotated[list[dict[str, Any]], FIRST_FAULT]


class Block(Body):
    """A content block of any kind; which fields it needs is checked when it is read."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Text | None = None


class GivenMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], FIRST_FAULT]


class AnthropicTool(Body):
    type: str | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    @property
    def is_function(self) -> bool:
        """Other kinds are known to Anthropic's models alone."""
        return self.type in (None, "custom")

    @property
    def tool(self) -> Tool:
        return function_tool(name=self.name, description=self.description, parameters=self.input_schema)


class PromptFields(SessionFields):
    """What the prompt is made of."""

    model: str
    messages: Annotated[list[GivenMessage], Field(min_length=1, max_length=MAX_MESSAGES), FIRST_FAULT]
    system: str | Annotated[list[Block], FIRST_FAULT] | None = None
    tools: Annotated[list[AnthropicTool], FIRST_FAULT] | None = None
    tool_choice: dict[str, Any] | None = None

    def request(self, body: Mapping[str, Any]) -> CompletionRequest:
        """What `body`, from which this was made, asks for.

        Raises ApiError for what we would otherwise have to answer wrongly.
        """
        choice = self.tool_choice or {}
        if self.messages[-1].role == "assistant":
            raise bad_request(
                "messages: the last one must be the user's; a reply that is begun cannot be gone on with",
                "messages",
            )
        tools = self.tools or []
        others = [f"tools of type {tool.type}" for tool in tools if not tool.is_function]
        mode, names = _choice(choice)
        offer, must_call = offered([tool.tool for tool in tools if tool.is_function], mode, names)
        return CompletionRequest(
            model=self.model,
            messages=tuple(self._messages()),
            tools=offer,
            must_call=must_call,
            one_call=choice.get("disable_parallel_tool_use") is True,
            session_names=(self.session_id,),
            turn_type=self.turn_type,
            session_done=self.session_done,
            ignored=(*self.ignored_fields(body), *others),
        )

    def _messages(self) -> Iterator[Message]:
        if self.system:
            yield {"role": "system", "content": _parts(self.system, "system")}
        for position, message in enumerate(self.messages):
            place = f"messages.{position}.content"
            if message.role == "assistant":
                yield _assistant(message.content, place)
            elif message.role == "user" and not isinstance(message.content, str):
                yield from _user(message.content, place)
            else:
                yield {"role": message.role, "content": _parts(message.content, place)}


class MessagesRequest(PromptFields):
    max_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    stop_sequences: Annotated[list[str], Field(max_length=MAX_STOPS), FIRST_FAULT] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None

    def request(self, body: Mapping[str, Any]) -> CompletionRequest:
        given = (self.metadata or {}).get("user_id")
        user_id = given if isinstance(given, str) else ""
        # Some clients have no other place for their session's id than the one for their user's.
        names_session = "session" in user_id
        asked = super().request(body)
        return replace(
            asked,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=tuple(self.stop_sequences or ()),
            stream=bool(self.stream),
            session_names=(*asked.session_names, user_id if names_session else None),
            person="" if names_session else user_id,
        )


_MODES: Mapping[Any, Mode] = {"auto": "auto", "none": "none", "any": "required", "tool": "required"}


def _choice(choice: Mapping[str, Any]) -> tuple[Mode, list[str] | None]:
    """What a tool choice asks for, and the tool that it names."""
    kind = choice.get("type", "auto")
    name = choice.get("name")
    if not isinstance(kind, str) or kind not in _MODES or (kind == "tool" and not isinstance(name, str)):
        raise unknown_choice(choice)
    return _MODES[kind], [str(name)] if kind == "tool" else None


def _assistant(content: str | list[Block], place: str) -> Message:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts, thoughts, calls = [], [], []
    for position, block in enumerate(content):
        if block.type == "text":
            texts.append(block.text or "")
        elif block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            call = {"name": block.name, "arguments": json.dumps(block.input or {}, ensure_ascii=False)}
            calls.append({"id": block.id, "type": "function", "function": call})
        elif block.type != "redacted_thinking":
            raise _unread(f"{place}.{position}", block.type)
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(content: list[Block], place: str) -> Iterator[Message]:
    """Results become messages of their own; the words around them stay one message each."""
    words: list[dict[str, Any]] = []
    for position, block in enumerate(content):
        if block.type != "tool_result":
            words.append(_part(block.model_dump(), f"{place}.{position}"))
            continue
        if words:
            yield {"role": "user", "content": words}
            words = []
        result = block.content if block.content is not None else ""
        yield {
            "role": "tool",
            "tool_call_id": block.tool_use_id or "",
            "content": _parts(result, f"{place}.{position}.content"),
        }
    if words or not content:
        yield {"role": "user", "content": words}


def _parts(content: str | Sequence[Block | dict[str, Any]], place: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for position, block in enumerate(content):
        given = block.model_dump() if isinstance(block, Block) else block
        parts.append(_part(given, f"{place}.{position}"))
    return parts


def _part(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    if block.get("type") != "text" or not isinstance(block.get("text"), str):
        raise _unread(place, block.get("type"))
    return {"type": "text", "text": block["text"]}


def _unread(place: str, kind: object) -> Exception:
    return bad_request(f"{place}: this model reads text only, not content blocks of type {kind!r}", place)
