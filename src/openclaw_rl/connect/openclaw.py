"""OpenClaw's configuration for a server of ours, as a patch for its `openclaw config patch`.

One provider is enough: the server tells helper calls from the conversation by itself, and a second one for
them would switch on more of them. Knows the keys of OpenClaw's configuration, not how a server is found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openclaw_rl.connect.served import Served

PROVIDER = "openclaw-rl"
SMALL_CONTEXT = 16384
"""OpenClaw's own prompt has 11,000 to 13,000 tokens: below this it is made smaller."""
_REPLY_SHARE = 8
_LONGEST_REPLY = 4096
_PRIMARY = "agents.defaults.model.primary"
FORMER_MODEL = "YOUR-FORMER-MODEL"

_OTHERS_GO_TOO = (
    "Tools and skills become OpenClaw's own again; put yours in the place of null if you chose some."
)

_LEAN_DEFAULTS: dict[str, Any] = {"skipBootstrap": True}
_LEAN: dict[str, Any] = {
    "tools": {"allow": ["read", "write", "exec"], "toolSearch": False},
    "skills": {"allowBundled": ["none"]},
}


def patch(served: Served) -> dict[str, Any]:
    """The keys to set. Where the context is small, also those that shorten OpenClaw's own prompt."""
    model = {
        "id": served.model,
        "name": "Learning model",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": served.context,
        "maxTokens": min(_LONGEST_REPLY, served.context // _REPLY_SHARE),
        # The first two name the session in every request, the third has OpenClaw count with our numbers.
        "compat": {
            "supportsPromptCacheKey": True,
            "sendSessionAffinityHeaders": True,
            "supportsUsageInStreaming": True,
        },
    }
    provider = {
        "baseUrl": served.url,
        "apiKey": "YOUR-KEY" if served.needs_key else "any",
        "api": "openai-completions",
        "models": [model],
    }
    defaults: dict[str, Any] = {"model": {"primary": f"{PROVIDER}/{served.model}"}}
    whole: dict[str, Any] = {"models": {"providers": {PROVIDER: provider}}}
    if _is_small(served):
        defaults |= _LEAN_DEFAULTS
        whole |= _LEAN
    return {**whole, "agents": {"defaults": defaults}}


def undo(patch: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The patch that takes out again what `patch` puts in: null deletes. The user names the former model."""
    taken_out: dict[str, Any] = {}
    for name, value in patch.items():
        here = f"{path}.{name}".lstrip(".")
        if here == _PRIMARY:
            taken_out[name] = FORMER_MODEL
        elif isinstance(value, dict) and path != "models.providers":
            taken_out[name] = undo(value, here)
        else:
            taken_out[name] = None
    return taken_out


def remarks(served: Served) -> list[str]:
    """What to know and to do with the patch, a line each."""
    source = "the server says" if served.answered else "the settings say, for no server answers there yet"
    small = "tools and skills that OpenClaw offers to every model are cut down, or its prompt would not fit"
    key = "put one of server.api_keys in the place of YOUR-KEY"
    return [
        f"{served.model} at {served.url}, context of {served.context} tokens: {source}.",
        *([f"That is a small context: {small}."] if _is_small(served) else []),
        *([f"First {key}."] if served.needs_key else []),
        "To apply it, save it as openclaw-rl.json, then:",
        "  openclaw config patch --file openclaw-rl.json",
        f"To undo it, with the model that you had in the place of {FORMER_MODEL}:",
        f"  echo '{json.dumps(undo(patch(served)))}' | openclaw config patch --stdin",
        *([_OTHERS_GO_TOO] if _is_small(served) else []),
        *plugin_remarks(),
    ]


def plugin_remarks() -> list[str]:
    """How to add the plugin, where its folder is at hand."""
    folder = plugin_folder()
    if folder is None:
        return []
    allowed = "plugins.entries.openclaw-rl.hooks.allowConversationAccess true"
    return [
        "The plugin is optional; it says in a header what the server otherwise reads off the texts:",
        f"  openclaw plugins install --link {folder} --force --accept-capabilities",
        f"  openclaw config set {allowed}",
    ]


def plugin_folder() -> Path | None:
    """The OpenClaw plugin that comes with us: beside this file in a wheel, in a clone where it is kept."""
    here = Path(__file__).resolve()
    places = (here.parent / "openclaw_plugin", here.parents[3] / "integrations" / "openclaw")
    return next((place for place in places if (place / "openclaw.plugin.json").exists()), None)


def _is_small(served: Served) -> bool:
    return served.context < SMALL_CONTEXT
