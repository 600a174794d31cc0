"""Clients of Anthropic's Messages: SDK loops, and coding agents built on them with their own helper
requests.

Options: `system`, `tools`, `user_id` (metadata), `headers`, `thoughts` ("resend" with signatures, else
dropped), `reminder` (a block that the client adds to the newest user message, and only there), `reminders`
(one that it adds to each user message and keeps), `breakpoints` (cache_control on the newest user block),
`dated` (a date in the system prompt). Helpers: "topic", "title", "quota", "paths".
"""

from __future__ import annotations

from typing import Any

from openclaw_rl.evals.session_bench.clients.post import MODEL, Post, tool_schemas, transcript
from openclaw_rl.evals.session_bench.player import Asked, Entry

PATH = "/v1/messages"


def post(asked: Asked) -> Post:
    options = asked.options
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 1024}
    if user_id := options.get("user_id"):
        body["metadata"] = {"user_id": user_id}
    if asked.step.side in SIDES:
        body |= SIDES[asked.step.side](asked)
        return Post(PATH, body, dict(options.get("headers", {})))
    if system := options.get("system"):
        body["system"] = [{"type": "text", "text": system}]
        if date := options.get("dated"):
            body["system"].append({"type": "text", "text": f"Today's date is {date}."})
    if names := options.get("tools"):
        body["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in (schema["function"] for schema in tool_schemas(names))
        ]
    body["messages"] = list(asked.step.messages) or _history(asked)
    return Post(PATH, body | options.get("body", {}), dict(options.get("headers", {})))


def _history(asked: Asked) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number, entry in enumerate(asked.entries):
        role = "assistant" if entry.role == "assistant" else "user"
        blocks = _blocks(asked, entry, last=number == len(asked.entries) - 1)
        if messages and messages[-1]["role"] == role == "user":  # results and words are one message here
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _blocks(asked: Asked, entry: Entry, last: bool) -> list[dict[str, Any]]:
    if entry.role == "assistant":
        return _reply_blocks(entry, resend=asked.options.get("thoughts") == "resend")
    if entry.role == "tool":
        return [{"type": "tool_result", "tool_use_id": entry.call.id, "content": entry.text}]
    if entry.role == "summary":
        text = f"This session is being continued from a previous conversation. Summary:\n{entry.text}"
        return [{"type": "text", "text": text}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": entry.text}]
    if kept := asked.options.get("reminders"):
        blocks.insert(0, {"type": "text", "text": f"<system-reminder>\n{kept}\n</system-reminder>"})
    if last and (added := asked.options.get("reminder")):
        blocks.append({"type": "text", "text": f"<system-reminder>\n{added}\n</system-reminder>"})
    if last and asked.options.get("breakpoints"):
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return blocks


def _reply_blocks(entry: Entry, resend: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if entry.reply.thought and resend:
        signature = entry.reply.signature or "signature"
        blocks.append({"type": "thinking", "thinking": entry.reply.thought, "signature": signature})
    if entry.reply.text:
        blocks.append({"type": "text", "text": entry.reply.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in entry.reply.calls
    ]
    return blocks or [{"type": "text", "text": "(no content)"}]


def _topic(asked: Asked) -> dict[str, Any]:
    system = (
        "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title. "
        "Format "
        "your response as a JSON object with two fields: 'isNewTopic' and 'title'."
    )
    newest = next(
        (entry.text for entry in reversed(asked.entries) if entry.role == "user" and entry.text), ""
    )
    return {"system": system, "messages": [{"role": "user", "content": newest}], "max_tokens": 512}


def _title(asked: Asked) -> dict[str, Any]:
    system = "Summarize this coding conversation in under 50 characters. Capture the main task and key files."
    user = f"Please write a 5-10 word title for the following conversation:\n\n{transcript(asked.entries)}"
    return {"system": system, "messages": [{"role": "user", "content": user}], "max_tokens": 512}


def _quota(asked: Asked) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "quota"}], "max_tokens": 1}


def _paths(asked: Asked) -> dict[str, Any]:
    system = (
        'Extract any file paths that this command reads or modifies. For commands like "git diff" and "cat", '
        "include the paths of files being shown. Return only the paths, in <filepaths> tags."
    )
    calls = asked.last_reply.calls
    command = calls[0].arguments if calls else {}
    user = f"Command: {command.get('command', '')}\nOutput: (shown to the user)"
    return {"system": system, "messages": [{"role": "user", "content": user}], "max_tokens": 512}


SIDES = {"topic": _topic, "title": _title, "quota": _quota, "paths": _paths}
