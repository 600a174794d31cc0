"""Which headers pass through, in both directions.

All do but those that belong to one connection (RFC 9110, 7.6.1), that are for this server alone, or that
would no longer be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from openclaw_rl.gateway.auth import KEY_HEADER

Headers = list[tuple[str, str]]

_OF_THE_CONNECTION = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_FOR_US = frozenset(
    {
        "accept-encoding",  # asked for plain: what is compressed cannot be recorded as it passes
        "content-length",  # counted anew, for the same bytes
        "cookie",  # a browser's, for this machine
        "expect",
        "host",
        KEY_HEADER.lower(),
        "x-session-done",
        "x-session-id",
        "x-turn-type",
    }
)
_OF_THE_UPSTREAM = frozenset({"alt-svc", "date", "server"})
_OF_THE_CODING = frozenset({"content-encoding", "content-length"})


def to_upstream(given: Mapping[str, str], pairs: Iterable[tuple[str, str]]) -> Headers:
    """A caller's headers as the upstream gets them; `pairs` are those of `given`, with repetitions."""
    left_out = _FOR_US | _OF_THE_CONNECTION | _named(given.get("connection", ""))
    return [*(_without(pairs, left_out)), ("accept-encoding", "identity")]


def to_caller(given: Mapping[str, str], pairs: Iterable[tuple[str, str]]) -> Headers:
    """The upstream's headers as the caller gets them."""
    left_out = _OF_THE_UPSTREAM | _OF_THE_CONNECTION | _named(given.get("connection", ""))
    if "content-encoding" in given:  # compressed all the same; it is passed on plain
        left_out |= _OF_THE_CODING
    return _without(pairs, left_out)


def _named(connection: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in connection.split(","))


def _without(pairs: Iterable[tuple[str, str]], left_out: frozenset[str]) -> Headers:
    return [(name, value) for name, value in pairs if name.lower() not in left_out]
