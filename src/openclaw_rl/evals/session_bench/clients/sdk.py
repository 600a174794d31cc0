"""A program of one's own around the `openai` SDK: append what came, append what comes next, send it all.

Options: `system` (and `system_role`), `examples` (user and assistant in turns, before the history),
`tools`, `parts` (contents as text parts), `headers`, `body` (more fields), and what it does to replies:
`strip` (spaces at the end), `cut` (to so many characters), `thoughts` ("resend", "inline", else dropped),
`empty` ("null", "drop"), `footer` (a line it adds). `memories` come in a system message before the newest
one.
"""

from __future__ import annotations

import json
from typing import Any

from openclaw_rl.evals.session_bench.clients.post import Post, chat, tool_schemas
from openclaw_rl.evals.session_bench.player import Asked, Entry


def post(asked: Asked) -> Post:
    messages = list(asked.step.messages) or opening(asked.options) + history(asked.entries, asked.options)
    if memories := asked.options.get("memories"):
        messages.insert(len(messages) - 1, {"role": "system", "content": f"Relevant memories:\n- {memories}"})
    fields: dict[str, Any] = {}
    if names := asked.options.get("tools"):
        fields["tools"] = tool_schemas(names)
    return chat(asked, messages, **fields)


def opening(options: dict[str, Any]) -> list[dict[str, Any]]:
    """What stands before the history in every request."""
    system = options.get("system")
    first = [{"role": options.get("system_role", "system"), "content": system}] if system else []
    examples = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(options.get("examples", ()))
    ]
    return first + examples


def history(entries: tuple[Entry, ...], options: dict[str, Any]) -> list[dict[str, Any]]:
    messages = []
    for entry in entries:
        if entry.role == "assistant":
            if (message := assistant(entry, options)) is not None:
                messages.append(message)
        elif entry.role == "tool":
            messages.append({"role": "tool", "tool_call_id": entry.call.id, "content": entry.text})
        elif entry.role == "summary":
            messages.append({"role": "user", "content": f"Summary of the conversation so far:\n{entry.text}"})
        else:
            content = [{"type": "text", "text": entry.text}] if options.get("parts") else entry.text
            messages.append({"role": "user", "content": content})
    return messages


def assistant(entry: Entry, options: dict[str, Any]) -> dict[str, Any] | None:
    """A reply as this client sends it back, or None if it forgets an empty one."""
    text = kept_text(entry.reply.text, options)
    if not text and not entry.reply.calls and options.get("empty") == "drop":
        return None
    if entry.reply.thought and options.get("thoughts") == "inline":
        text = f"<think>{entry.reply.thought}</think>{text}"
    content: Any = [{"type": "text", "text": text}] if options.get("parts") and text else text
    null = not text and (options.get("empty") == "null" or bool(entry.reply.calls))
    message: dict[str, Any] = {"role": "assistant", "content": None if null else content}
    if entry.reply.thought and options.get("thoughts") == "resend":
        message["reasoning_content"] = entry.reply.thought
    if entry.reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in entry.reply.calls
        ]
    return message


def kept_text(text: str, options: dict[str, Any]) -> str:
    """What is left of a reply's text after what clients do to it."""
    if options.get("strip"):
        text = text.strip()
    if cut := options.get("cut"):
        text = text[:cut]
    if footer := options.get("footer"):
        text += footer
    return text
