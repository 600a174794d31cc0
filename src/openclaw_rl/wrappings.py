"""What clients put around, before and between the words of people, as texts: how to know it and take it off.

Every such mark is in this file, as it stands in the requests of the client that writes it. Requests are
compared by `bare`, which is the same each time a message is sent; judges read `words`. Knows nothing of ours.
"""

from __future__ import annotations

import re

# OpenClaw
INTERNAL_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_STAMP = re.compile(r"\s*\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]{1,40}\] ?")
_SENDER = re.compile(r"Conversation info: \u27e6openclaw:ctx\u27e7\n```json\n.*?\n```\n\n", re.DOTALL)
_RUNTIME = "Runtime: agent="
_TRIED_AGAIN = re.compile(
    r"\[Queued user message from a previous active turn;[^\]]*\]\n(.*)\n\n"
    r"Continue the current task from the existing transcript,.*",
    re.DOTALL,
)
"""How it words a message anew when a request failed; the next request has the plain words again."""

# Coding agents: Claude Code's reminders, Cline's and Roo's view of the editor
_REMINDER = ("<system-reminder>", "</system-reminder>")
_ENVIRONMENT = ("<environment_details>", "</environment_details>")

# Open WebUI: documents found for the newest message, before the words
_DOCUMENTS = ("### Task:\nRespond to the user query using the provided context", "</context>")

# Aider: what it shows in each request, and acknowledges in the model's name
_SHOWN = {
    "Here are summaries of some files": "Ok, I won't try and edit those files without asking first.",
    "I have *added these files to the chat*": "Ok, any changes I propose will be to those files.",
    "Here are some READ ONLY files": "Ok, I will use these files as references.",
    "I committed the changes with git hash": "Ok.",
}


def is_injected(text: str) -> bool:
    """Whether a user message is all the client's: OpenClaw's state of affairs, or nothing but reminders."""
    start = text.lstrip()
    return start.startswith(INTERNAL_CONTEXT) or (bool(start) and not _without(_REMINDER, start).strip())


def is_shown(text: str, answer: str) -> bool:
    """Whether a user's and an assistant's message are a pair that the client wrote both of."""
    start, said = text.lstrip(), answer.strip()
    return any(start.startswith(shown) and said == answered for shown, answered in _SHOWN.items())


def bare(text: str) -> str:
    """A user's message without what the client changes from one request to the next."""
    text = without_runtime_line(text)
    stamp = stamp_of(text)
    tried = _TRIED_AGAIN.fullmatch(text, len(stamp))
    if tried:
        text = stamp + tried.group(1)
    if text.startswith(_DOCUMENTS[0]):
        text = text.rpartition(_DOCUMENTS[1])[2].lstrip()
    return _without(_ENVIRONMENT, _without(_REMINDER, text)).rstrip()


def words(text: str) -> str:
    """What the person wrote, or the client in its own name: `bare`, and no time stamp or sender."""
    text = bare(text)
    text = text[len(stamp_of(text)) :]
    sender = _SENDER.match(text)
    return (text[sender.end() :] if sender else text).strip()


def stamp_of(text: str) -> str:
    """OpenClaw's time stamp at the beginning of a message that came from outside; else nothing."""
    stamp = _STAMP.match(text)
    return stamp.group() if stamp else ""


def runtime_line(text: str) -> str:
    """The line that OpenClaw adds to the first message of a request, made anew each time; else nothing."""
    last_line = text.rstrip().rpartition("\n")[2]
    return last_line if last_line.startswith(_RUNTIME) and " | " in last_line else ""


def without_runtime_line(text: str) -> str:
    line = runtime_line(text)
    return text.rstrip()[: -len(line)].rstrip() if line else text


def _without(tags: tuple[str, str], text: str) -> str:
    """The text without each stretch between two tags that fills lines of its own; one scan, however long."""
    opening, closing = tags
    kept: list[str] = []
    position = 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start)) >= 0:
        end += len(closing)
        if text[max(start - 1, 0) : start] in ("", "\n") and text[end : end + 1] in ("", "\n"):
            kept.append(text[position:start])
            end += text[end : end + 1] == "\n"
        else:
            kept.append(text[position:end])
        position = end
    return "".join([*kept, text[position:]])
