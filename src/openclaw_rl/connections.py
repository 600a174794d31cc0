"""How long an HTTP connection may rest between two requests, of those we accept and of those we make.

Whoever closes a resting connection may do so just as the other side sends on it, and then a request fails
that was never looked at. So the client has to be the first to close: as a server we wait longer than clients
do, as a client less long than servers do. Knows no address and no protocol of ours.
"""

from __future__ import annotations

import httpx2

ACCEPTED_SECONDS = 75
"""httpx keeps a connection for 5 s and aiohttp for 15; proxies before us often for 60."""

MADE_SECONDS = 2.0
"""uvicorn, and with it vLLM and SGLang, waits for 5 s, as Node.js does."""

_RESTING = 20


def limits() -> httpx2.Limits:
    """Of a client of ours that stays: as many connections as there are requests, of which few are kept."""
    return httpx2.Limits(
        max_connections=None, max_keepalive_connections=_RESTING, keepalive_expiry=MADE_SECONDS
    )
