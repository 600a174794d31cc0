"""What servers of three protocols answer, in the forms in which they really do."""

from __future__ import annotations

import json
from typing import Any

from other_server import EVENTS, Answer

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
MODEL = "big-2026-01-01"


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def chat_body(*texts: str, finish: str = "stop", id: str = "chatcmpl-abc", **message: Any) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {**assistant(text), **message}, "finish_reason": finish}
        for i, text in enumerate(texts)
    ]
    return {"id": id, "object": "chat.completion", "model": MODEL, "choices": choices, "usage": USAGE}


def chunk(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-abc", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}


def last_usage() -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": USAGE}


def named(*events: dict[str, Any]) -> Answer:
    """A stream in the form of Messages and Responses: each event has its kind as its name."""
    chunks = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return Answer(chunks, headers=list(EVENTS))


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one content block of Messages."""
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


MESSAGES_EVENTS = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_abc", "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 1},
        },
    },
    *block(
        0, {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
    ),
    *block(
        1, {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Let me "}, {"type": "text_delta", "text": "look."},
    ),
    *block(
        2, {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"path"'},
        {"type": "input_json_delta", "partial_json": ': "/"}'},
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
]  # fmt: skip
"""A thought, words and a call."""


def response_body(
    text: str = "Let me look.", status: str = "completed", id: str = "resp_abc"
) -> dict[str, Any]:
    return {
        "id": id, "object": "response", "created_at": 1, "status": status, "model": MODEL, "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": {
            "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            },
        ],
    }  # fmt: skip


def response_events(text: str = "Let me look.") -> list[dict[str, Any]]:
    whole = response_body(text)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    thought, message = whole["output"]
    part = {"type": "output_text", "text": "", "annotations": []}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": thought},
        {"type": "response.output_item.added", "output_index": 1, "item": {**message, "content": []}},
        {"type": "response.content_part.added", "part": part, **place},
        {"type": "response.output_text.delta", "delta": text, "logprobs": [], **place},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
