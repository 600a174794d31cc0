"""Who may ask: API keys and the tenant each stands for, and where it is safe to listen without one.

Knows no route. Keys are compared in constant time and never leave this file; a tenant is named by a
short hash of its key.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.gateway.errors import ApiError

DEFAULT_TENANT = "default"
KEY_HEADER = "X-OpenClaw-RL-Key"
"""Where a key of ours is sent in front of an upstream, to which `Authorization` belongs."""


class Keys:
    """The keys that clients may use; none means that everybody may ask."""

    def __init__(self, settings: Settings, header: str = "") -> None:
        """A key is sent in `header`, or where OpenAI's and Anthropic's clients send theirs."""
        self._keys = [key.get_secret_value().encode() for key in settings.server.api_keys]
        self._header = header
        self._how = f"{header}: KEY" if header else "Authorization: Bearer KEY"

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """The tenant that a request stands for.

        Raises ApiError 401 without a valid key, or 403 where no key is needed and a web page of another
        site asks: a browser would let any page that its user visits talk to this machine.
        """
        if not self._keys:
            _refuse_other_sites(headers)
            return DEFAULT_TENANT
        given = self._offered(headers).strip().encode()
        # Every key is compared, so that the time taken does not tell which one was nearly right.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            raise ApiError(
                401,
                f"Incorrect API key provided: send a key of this server as `{self._how}`.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return f"key_{hashlib.sha256(given).hexdigest()[:12]}"

    def _offered(self, headers: Mapping[str, str]) -> str:
        if self._header:
            return headers.get(self._header, "")
        scheme, _, offered = headers.get("authorization", "").partition(" ")
        # Anthropic's clients send their key in a header of its own.
        return offered if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _refuse_other_sites(headers: Mapping[str, str]) -> None:
    """Only names of this machine may stand in Host (DNS rebinding) and Origin (pages of other sites)."""
    named = {"Host": f"//{headers.get('host', '')}", "Origin": headers.get("origin", "")}
    for header, value in named.items():
        name = urlsplit(value).hostname
        if value.strip("/") and not is_loopback(name or ""):
            raise ApiError(
                403,
                f"The {header} header names another machine. Without server.api_keys this server answers "
                f"programs and pages of this machine alone.",
                code="foreign_site",
            )


def check_bind(settings: Settings) -> None:
    """Raise ConfigError when the server would listen beyond this machine without asking for a key."""
    if any(not key.get_secret_value() for key in settings.server.api_keys):
        raise ConfigError("server.api_keys: a key is empty; remove it or write one")
    if not settings.server.api_keys and not is_loopback(settings.server.host):
        raise ConfigError(
            f"server.host = {settings.server.host!r} can be reached from other machines, so "
            f"server.api_keys must hold at least one key; or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
