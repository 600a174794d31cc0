"""What OpenClaw asks in its own name, and how to tell it from what people say.

Every mark of those texts is in this file, as seen in its recorded requests; what it wraps around people's
words is in `wrappings`. Knows no session and no store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from openclaw_rl.wrappings import runtime_line, stamp_of

_SESSION_KEY = re.compile(r"\| session=(\S+)")
_KEY_KIND = re.compile(r":(subagent|cron|hook|acp|internal-session-effects)(?::|$)")

_SYSTEM_PROMPTS = {
    "Generate a concise session title": "title",
    "Write an Activity recap": "activity recap",
    "You are a context summarization assistant.": "compaction summary",
}
_UNSTAMPED = {
    "Pre-compaction memory flush.": "memory flush",
    "Follow the heartbeat monitor scratch context": "heartbeat",
    "[cron:": "cron",
}
"""Openings of what has no time stamp: with one, a person wrote it."""
_STAMPED = {
    "[OpenClaw heartbeat poll]": "heartbeat",
    "[Subagent Context] You": "subagent",
    "A background task completed.": "subagent completion",
}
_NEEDS_MARK = {"subagent completion": "isUser=false"}
"""Openings that a person could also write count only together with this mark."""
_SUMMARY = "The conversation history before this point was compacted"
_SILENT = ("NO_REPLY", "HEARTBEAT_OK")
"""What an agent answers when the person is to hear nothing."""


def helper_system_prompt(text: str) -> str | None:
    """Which helper call a system prompt belongs to, or None for an agent's own."""
    start = text.lstrip()
    return next((kind for opening, kind in _SYSTEM_PROMPTS.items() if start.startswith(opening)), None)


def stamps_people(user_texts: Iterable[str]) -> bool:
    """Whether these user messages come from an OpenClaw that puts a time stamp before what people say."""
    texts = list(user_texts)
    return any(runtime_line(text) for text in texts) and any(stamp_of(text) for text in texts)


def unattended_message(text: str, *, stamped: bool = False) -> str | None:
    """What wrote a user message, when no person did; None for a person's.

    `stamped` says that people's messages have a time stamp where this one comes from (`stamps_people`).
    """
    start = text.lstrip()
    stamp = stamp_of(start)
    words = start[len(stamp) :]
    openings = _STAMPED if stamp else {**_UNSTAMPED, **_STAMPED}
    for opening, kind in openings.items():
        if words.startswith(opening) and _NEEDS_MARK.get(kind, "") in words:
            return kind
    if "[Inter-session message]" in words and "isUser=false" in words:
        return "subagent completion"
    # The owner may have worded the heartbeat anew; these two lines always follow it.
    if not stamp and "\nCurrent time: " in words and "\nReference UTC: " in words:
        return "heartbeat"
    return (
        "message without a time stamp" if stamped and not stamp and not words.startswith(_SUMMARY) else None
    )


def unattended_session(text: str) -> str | None:
    """What a session runs for, when its key in the Runtime line says that it is not a person's."""
    key = _SESSION_KEY.search(runtime_line(text))
    kind = _KEY_KIND.search(key.group(1)) if key else None
    if kind is None:
        return None
    return "memory flush" if kind.group(1) == "internal-session-effects" else kind.group(1)


def is_silent(reply: str) -> bool:
    """Whether the person was shown nothing of a reply."""
    said = reply.strip()
    return not said or said.startswith(_SILENT) or said.endswith(_SILENT)
