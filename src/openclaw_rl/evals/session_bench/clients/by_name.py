"""Which client is meant by a name in a script."""

from __future__ import annotations

from collections.abc import Callable

from openclaw_rl.evals.session_bench.clients import (
    anthropic_messages,
    chat_apps,
    coding_agents,
    openclaw,
    responses,
    sdk,
)
from openclaw_rl.evals.session_bench.clients.post import Post
from openclaw_rl.evals.session_bench.player import Asked

CLIENTS: dict[str, Callable[[Asked], Post]] = {
    "openclaw": openclaw.post,
    "sdk": sdk.post,
    "chat app": chat_apps.post,
    "mini-swe-agent": coding_agents.mini_swe_agent,
    "cline": coding_agents.cline,
    "aider": coding_agents.aider,
    "anthropic": anthropic_messages.post,
    "responses": responses.post,
}
