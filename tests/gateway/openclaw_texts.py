"""Texts in the forms that OpenClaw gives its messages, with made-up content."""

from __future__ import annotations

from typing import Any

STAMP = "[Sun 2026-11-29 15:17 UTC] "
CLOCK = "\nCurrent time: Sunday, November 29th, 2026 - 3:17 PM (UTC)\nReference UTC: 2026-11-29 15:17 UTC"


def runtime(key: str = "agent:main:a", extra: str = "") -> str:
    return f"\n\nRuntime: agent=main | session={key} | sessionId=1b2c | host=h | shell=bash{extra}"


def person(text: str, **line: str) -> dict[str, Any]:
    """What a person typed; with arguments of `runtime`, the first message of a request."""
    return {"role": "user", "content": STAMP + text + (runtime(**line) if line else "")}


def internal_context(state: str = "none") -> dict[str, Any]:
    text = (
        f"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nActive exec sessions: {state}\n"
        "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
    )
    return {"role": "user", "content": [{"type": "text", "text": text}]}


HEARTBEAT = {"role": "user", "content": "Follow the heartbeat monitor scratch context strictly." + CLOCK}
REWORDED_HEARTBEAT = {"role": "user", "content": "Anything to do?" + CLOCK}
PAST_HEARTBEAT = {"role": "user", "content": "[OpenClaw heartbeat poll]"}
MEMORY_FLUSH = {"role": "user", "content": "Pre-compaction memory flush. Store memories." + CLOCK}
SUBAGENT = {"role": "user", "content": STAMP + "[Subagent Context] You run as a subagent. Count."}
COMPLETION = {
    "role": "user",
    "content": STAMP + "A background task completed. Use this result.\n\n"
    "[Inter-session message] sourceSession=agent:main:subagent:1 isUser=false\nRouted by OpenClaw.",
}
CRON = {"role": "user", "content": "[cron:d848 job] Check the note" + CLOCK}
