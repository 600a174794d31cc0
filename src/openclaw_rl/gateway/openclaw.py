"""What OpenClaw puts into requests besides the conversation, and how to recognise it.

Every marker of that client's texts is in this file, as seen in its recorded requests. Other clients'
texts hold none of them. Knows no session and no store.
"""

from __future__ import annotations

import re

INTERNAL_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_RUNTIME = "Runtime: agent="
_TIME_STAMP = re.compile(r"\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]{1,40}\] ")
_SESSION_KEY = re.compile(r"\| session=(\S+)")
_KEY_KIND = re.compile(r":(subagent|cron|hook|acp|internal-session-effects)(?::|$)")

_SYSTEM_PROMPTS = {
    "Generate a concise session title": "title",
    "Write an Activity recap": "activity recap",
    "You are a context summarization assistant.": "compaction summary",
}
_OPENINGS = {
    "Pre-compaction memory flush.": "memory flush",
    "Follow the heartbeat monitor scratch context": "heartbeat",
    "[OpenClaw heartbeat poll]": "heartbeat",
    "[cron:": "cron",
    "[Subagent Context]": "subagent",
    "A background task completed.": "subagent completion",
}
_NEEDS_MARK = {"subagent completion": "isUser=false"}
"""Openings that a person could also write count only together with this mark."""


def is_internal_context(text: str) -> bool:
    """Whether a user message is the state that OpenClaw adds at the end of a request."""
    return text.lstrip().startswith(INTERNAL_CONTEXT)


def without_runtime_line(text: str) -> str:
    """A user's text without the Runtime line at its end, which is recomputed at each request."""
    line = _runtime_line(text)
    return text.rstrip()[: -len(line)].rstrip() if line else text


def _runtime_line(text: str) -> str:
    last_line = text.rstrip().rpartition("\n")[2]
    return last_line if last_line.startswith(_RUNTIME) and " | " in last_line else ""


def helper_system_prompt(text: str) -> str | None:
    """Which helper call a system prompt belongs to, or None for an agent's own."""
    start = text.lstrip()
    return next((kind for opening, kind in _SYSTEM_PROMPTS.items() if start.startswith(opening)), None)


def unattended_message(text: str) -> str | None:
    """What wrote a user message, when no person did; None for a person's."""
    start = text.lstrip()
    stamp = _TIME_STAMP.match(start)
    words = start[stamp.end() :] if stamp else start
    for opening, kind in _OPENINGS.items():
        if words.startswith(opening) and _NEEDS_MARK.get(kind, "") in words:
            return kind
    if "[Inter-session message]" in words and "isUser=false" in words:
        return "subagent completion"
    # The owner may have worded the heartbeat anew; these two lines always follow it.
    if stamp is None and "\nCurrent time: " in words and "\nReference UTC: " in words:
        return "heartbeat"
    return None


def unattended_session(text: str) -> str | None:
    """What a session runs for, when its key in the Runtime line says that it is not a person's."""
    key = _SESSION_KEY.search(_runtime_line(text))
    kind = _KEY_KIND.search(key.group(1)) if key else None
    if kind is None:
        return None
    return "memory flush" if kind.group(1) == "internal-session-effects" else kind.group(1)
