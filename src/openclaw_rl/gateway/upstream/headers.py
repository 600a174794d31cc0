"""Which headers pass through, in both directions.

All do but those that belong to one connection (RFC 9110, 7.6.1), that are for this server alone, or that
would no longer be true.
"""

from __future__ import annotations

from collections.abc import Iterable

from openclaw_rl.gateway.auth import KEY_HEADER

Headers = list[tuple[str, str]]

NOT_RECORDED_HEADER = "X-Not-Recorded"

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
# A length is no promise that we can keep: an answer that breaks off ends in an error.
_OF_THE_UPSTREAM = frozenset({"alt-svc", "content-length", "date", "server"})
_CODINGS = frozenset({"", "deflate", "gzip", "identity"})
_LONGEST_REASON = 300


def to_upstream(given: Headers) -> Headers:
    """A caller's headers as the upstream gets them; both with repetitions."""
    return [*_without(given, _FOR_US), ("accept-encoding", "identity")]


def to_caller(given: Headers) -> Headers:
    """The upstream's headers as the caller gets them."""
    # Compressed all the same; what can be read is passed on plain.
    return _without(given, _OF_THE_UPSTREAM | ({"content-encoding"} if can_be_decoded(given) else set()))


def can_be_decoded(given: Headers) -> bool:
    """Whether a body with these headers can be read; any other is passed on as it came."""
    return _tokens(given, "content-encoding") <= _CODINGS


def not_recorded(reason: str) -> Headers:
    """What tells a caller that its turn is not kept, and why."""
    said = reason.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    return [(NOT_RECORDED_HEADER, said[:_LONGEST_REASON])]


def _tokens(given: Headers, header: str) -> frozenset[str]:
    """What a list says, in however many headers it was sent."""
    lists = [value for name, value in given if name.lower() == header]
    return frozenset(token.strip().lower() for value in lists for token in value.split(","))


def _without(given: Headers, names: Iterable[str]) -> Headers:
    left_out = _OF_THE_CONNECTION | _tokens(given, "connection") | frozenset(names)
    return [(name, value) for name, value in given if name.lower() not in left_out]
