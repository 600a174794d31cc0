"""Coding agents that speak plain Chat Completions without tool calls: each with its own way of writing.

mini-swe-agent: the task in a template, what a command printed as a user message. Cline: calls in XML,
results and an environment block in user messages of several parts. Aider: files and repository map written
anew in each request, in places that move; acknowledgements that it makes up itself; commit messages as a
helper request.
"""

from __future__ import annotations

from typing import Any

from openclaw_rl.evals.session_bench.clients.post import Post, chat, transcript
from openclaw_rl.evals.session_bench.player import Asked, Entry

SHELL = "You can do anything with a shell. Answer with a thought and exactly one command in a bash block."
EDITOR = "Act as an expert software developer. Answer with SEARCH/REPLACE blocks for the files that change."
XML = (
    "You are a highly skilled software engineer. You have tools, written as XML tags in your reply, one in "
    "each "
    "message; the result of each comes with the user's next message."
)


def mini_swe_agent(asked: Asked) -> Post:
    messages = [{"role": "system", "content": SHELL}]
    for number, entry in enumerate(asked.entries):
        if number == 0:
            task = f"Please solve this issue: {entry.text}\n\nYou can execute bash commands and edit files.\n"
            messages.append({"role": "user", "content": task})
        else:
            messages.append({"role": _role(entry), "content": entry.text})
    return chat(asked, messages, temperature=0.0)


def cline(asked: Asked) -> Post:
    messages: list[dict[str, Any]] = [{"role": "system", "content": XML}]
    for number, entry in enumerate(asked.entries):
        if entry.role == "assistant":
            messages.append({"role": "assistant", "content": entry.text})
            continue
        words = f"<task>\n{entry.text}\n</task>" if number == 0 else entry.text
        around = (
            f"<environment_details>\n# Visual Studio Code Visible Files\nsrc/app.py\n\n# Current Time\n15:"
            f"{entry.minute + 10:02}\n\n# Current Mode\nACT MODE\n</environment_details>"
        )
        parts = [{"type": "text", "text": text} for text in (words, around)]
        messages.append({"role": "user", "content": parts})
    return chat(asked, messages, stream=True, temperature=0)


def aider(asked: Asked) -> Post:
    """Options: `map` (repository map), `files` (contents by name), `commits` (made after each earlier "
    "reply)."""
    if asked.step.side == "commit":
        system = "You are an expert software engineer that generates concise, one-line Git commit messages."
        diff = f"# Context\n{transcript(asked.entries)}\n\n# Diff\n--- a/app.py\n+++ b/app.py"
        return chat(asked, [{"role": "system", "content": system}, {"role": "user", "content": diff}])
    if asked.step.side == "summary":
        user = (
            f"*Briefly* summarize this partial conversation about programming.\n{transcript(asked.entries)}"
        )
        return chat(asked, [{"role": "user", "content": user}])
    repo = f"Here are summaries of some files in my git repository.\n{asked.options.get('map', 'app.py')}"
    texts = "\n\n".join(f"{name}\n```\n{text}\n```" for name, text in asked.options.get("files", {}).items())
    files = f"I have *added these files to the chat* so you can go ahead and edit them.\n\n{texts}"
    messages = [{"role": "system", "content": EDITOR}]
    messages += _pair(repo, "Ok, I won't try and edit those files without asking first.")
    newest = len(asked.entries) - 1
    for number, entry in enumerate(asked.entries):
        if number == newest:
            messages += _pair(files, "Ok, any changes I propose will be to those files.")
        messages.append({"role": _role(entry), "content": entry.text})
        if entry.role == "assistant" and asked.options.get("commits"):
            messages += _pair("I committed the changes with git hash 1f2e3d4 & commit msg: update", "Ok.")
    return chat(asked, messages, temperature=0, stream=True)


def _pair(user: str, acknowledged: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": acknowledged}]


def _role(entry: Entry) -> str:
    return "assistant" if entry.role == "assistant" else "user"
