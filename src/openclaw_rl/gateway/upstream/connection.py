"""The other server, as requests reach it: its address, its time-outs, and what is said when it fails.

Follows no redirects, keeps no cookies and adds nothing of its own to a request. Its errors hold neither
headers nor bodies: both may be secret. Knows nothing of what is recorded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from openclaw_rl import connections
from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.gateway.auth import is_loopback
from openclaw_rl.gateway.errors import ApiError
from openclaw_rl.gateway.upstream.headers import Headers

_VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_PREFIX = "/v1"


@dataclass(frozen=True, slots=True)
class Forward:
    """A request as the upstream gets it."""

    method: str
    path: str
    """As it came, from /v1 on."""
    query: str
    headers: Headers
    body: bytes


class Upstream:
    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError for a URL that is none, that is our own, or that holds a secret."""
        self.url = base_url(settings)
        self._settings = settings.upstream
        self._http = httpx2.AsyncClient(limits=connections.limits(), follow_redirects=False)
        connect, silence = self._settings.connect_seconds, self._settings.silence_seconds
        timeout = httpx2.Timeout(connect=connect, read=silence, write=silence, pool=None)
        self._extensions = {"timeout": timeout.as_dict()}

    async def send(self, forward: Forward) -> httpx2.Response:
        """The answer, of which only the head is read; the caller closes it. Raises ApiError 502 or 504."""
        query = f"?{forward.query}" if forward.query else ""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in forward.headers]
        try:
            # Made by hand: the client would add headers of its own, and the cookies of earlier answers.
            request = httpx2.Request(
                forward.method,
                self.url + forward.path.removeprefix(_PREFIX) + query,
                headers=headers,
                content=forward.body or None,
                extensions=self._extensions,
            )
            return await self._http.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self.failure(error) from None

    def failure(self, error: Exception) -> ApiError:
        """What a caller is told of an error of the connection."""
        if isinstance(error, httpx2.ConnectTimeout):
            seconds = self._settings.connect_seconds
            return self._failed(504, f"took no connection in {seconds:g} s (upstream.connect_seconds)")
        if isinstance(error, httpx2.TimeoutException):
            seconds = self._settings.silence_seconds
            return self._failed(504, f"was silent for {seconds:g} s (upstream.silence_seconds)")
        if isinstance(error, httpx2.ConnectError):
            # The system's own words: no such name, connection refused, a certificate that is not trusted.
            return self._failed(502, f"cannot be reached: {error}")
        # Other texts may quote a header, so only their kind is told.
        return self._failed(502, f"broke off ({type(error).__name__})")

    def _failed(self, status: int, how: str) -> ApiError:
        return ApiError(
            status, f"The upstream {self.url} {how}.", kind="server_error", code="upstream_failed"
        )

    async def close(self) -> None:
        await self._http.aclose()


def base_url(settings: Settings) -> str:
    """`upstream.url` up to and with its version, as paths are joined to it. Raises ConfigError."""
    url = settings.upstream.url.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if "@" in url or parts.query or parts.fragment:
        raise ConfigError(
            "upstream.url holds more than an address; leave out names, passwords and what follows a ?: "
            "each caller sends its own credentials"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"upstream.url = {url!r} is no base URL; write one such as https://api.example.com/v1"
        )
    if port == settings.server.port and is_loopback(host):
        raise ConfigError(
            f"upstream.url = {url!r} is this server itself; give the other one's, or set --port"
        )
    base = url.rstrip("/")
    return base if _VERSION.search(parts.path) else base + _PREFIX
