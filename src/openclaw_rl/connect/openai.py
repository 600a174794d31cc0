"""The two environment variables that programs made with OpenAI's libraries read."""

from __future__ import annotations

import shlex

from openclaw_rl.connect.served import Served


def variables(served: Served) -> str:
    """Lines for a shell."""
    key = "YOUR-KEY" if served.needs_key else "any"
    return f"export OPENAI_BASE_URL={shlex.quote(served.url)}\nexport OPENAI_API_KEY={key}"


def remarks(served: Served) -> list[str]:
    """What to know besides, a line each."""
    return [f"The model is {served.model}; prompt and reply may have {served.context} tokens together."]
