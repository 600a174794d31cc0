"""What a client connects to: the address, the model's name and its context window.

Asked of the running server, since it knows them best; else as the settings say. Knows no client.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from openclaw_rl.config import EMBEDDED_CONTEXT, EMBEDDED_MODEL, ConfigError, Settings

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Served:
    """`context` counts tokens of prompt and reply together; `url` ends with /v1."""

    url: str
    model: str
    context: int
    needs_key: bool
    answered: bool
    """Whether the server said so itself."""


def look(settings: Settings, url: str | None = None, key: str | None = None) -> Served:
    """Ask the server at `url`, or where the settings have it; where none answers, take the settings.

    Raises ConfigError when a server refuses, records only or is not ours, and when nobody knows the context
    window.
    """
    base = (url or settings.server.url).rstrip("/").removesuffix("/v1")
    keys = [given.get_secret_value() for given in settings.server.api_keys]
    if url is None:  # a key of the settings is for the server of the settings alone
        key = key or next(iter(keys), "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx2.Client(base_url=base, headers=headers, timeout=TIMEOUT_SECONDS) as http:
            return _ask(http, base, bool(key))
    except httpx2.TransportError:
        if url is not None:
            raise ConfigError(
                f"{base} cannot be reached: start the server, or give the right --url"
            ) from None
        return Served(f"{base}/v1", settings.served_name, _context_by(settings), bool(key), answered=False)


def _ask(http: httpx2.Client, base: str, needs_key: bool) -> Served:
    try:
        upstream = http.get("/readyz").raise_for_status().json().get("upstream")
    except (httpx2.HTTPStatusError, ValueError, AttributeError):
        raise _not_ours(base) from None
    if upstream:
        raise ConfigError(
            f"{base} records what {upstream} answers: keep the client's own configuration, and change the "
            f"address in it to {base}/v1"
        )
    response = http.get("/v1/models")
    if response.status_code == 401:
        raise ConfigError(f"{base} wants a key: give one with --api-key, or set server.api_keys")
    try:
        (model,) = response.raise_for_status().json()["data"]
        if not model["id"].isprintable():  # it is written into what a user copies
            raise _not_ours(base)
        return Served(f"{base}/v1", model["id"], int(model["context_length"]), needs_key, answered=True)
    except (httpx2.HTTPStatusError, ValueError, LookupError, TypeError, AttributeError):
        raise _not_ours(base) from None


def _not_ours(base: str) -> ConfigError:
    return ConfigError(
        f"what answers at {base} is no OpenClaw-RL server that is ready: give the right --url, or ask "
        "`openclaw-rl doctor` about it"
    )


def _context_by(settings: Settings) -> int:
    model_has = EMBEDDED_CONTEXT if settings.model.name == EMBEDDED_MODEL else 0
    asked = settings.engine.context_length
    if not (asked or model_has):
        raise ConfigError(
            f"the context window of {settings.model.name} is not known yet: start `openclaw-rl up` first, "
            "or set engine.context_length"
        )
    return min(asked or model_has, model_has or asked)
