"""What the server tells of itself: where every turn stands, what the next update needs, who does what.

Holds no conversation text. A key sees its own tenant's turns; how many samples wait is told to all. Every
function blocks on the store.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from openclaw_rl.gateway.bodies import Body
from openclaw_rl.gateway.gateway import Gateway
from openclaw_rl.model import TurnState
from openclaw_rl.store.progress import Standing


class TurnsQuery(Body):
    """Which turns `GET /v1/admin/turns` lists; the newest come first."""

    model_config = ConfigDict(extra="ignore", strict=False)

    state: TurnState | None = None
    session: str | None = None
    """As the client names it, or as `X-Session-Id` does."""
    after: str | None = None
    """The `last_id` of the page before."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


def turns(gateway: Gateway, tenant: str, query: TurnsQuery) -> dict[str, Any]:
    session_id = gateway.sessions.internal_id(tenant, query.session) if query.session else None
    found = gateway.store.progress.standings(
        tenant, session_id=session_id, state=query.state, after=query.after, limit=query.limit + 1
    )
    page = found[: query.limit]
    return {
        "object": "list",
        "data": [_told(standing) for standing in page],
        "has_more": len(found) > len(page),
        "last_id": page[-1].turn_id if page else None,
        "counts": _counts(gateway, tenant),
        "next_update": gateway.next_update,
    }


def status(gateway: Gateway, tenant: str) -> dict[str, Any]:
    now = time.time()
    return {
        **gateway.about,
        "counts": _counts(gateway, tenant),
        "next_update": gateway.next_update,
        "processes": [
            {
                "name": report.name,
                "phase": report.phase,
                "said_seconds_ago": round(now - report.updated_at, 3),
                "detail": report.detail,
            }
            for report in gateway.store.reports().values()
        ],
    }


def _told(standing: Standing) -> dict[str, Any]:
    return {**asdict(standing), "trainable": standing.trainable, "reason": standing.reason}


def _counts(gateway: Gateway, tenant: str) -> dict[str, int]:
    counts = gateway.store.progress.counts(tenant)
    return {state.value: counts.get(state, 0) for state in TurnState}
