"""Does a server run on a data folder, and where does it listen? Asked of the folder's locks and store.

Makes neither a folder nor a store, and asks nothing over HTTP.
"""

from __future__ import annotations

from contextlib import closing

from openclaw_rl.config import Settings
from openclaw_rl.processes.single import is_held
from openclaw_rl.store import Store


class NotYetError(RuntimeError):
    """What is asked for is on its way: a little later the same question has an answer."""


def refuse_starting(settings: Settings) -> None:
    """Raise NotYetError when `up` or `serve` runs on the folder and there is no store yet."""
    if not settings.database.exists() and _runs(settings):
        raise NotYetError(
            f"a server is starting on {settings.home}, and nothing is in its store yet; ask again in a moment"
        )


def server_url(settings: Settings) -> str | None:
    """Where the server of the data folder listens, without /v1, as it says itself; None if there is none.

    Raises NotYetError when one is about to serve, or `up` about to end.
    """
    refuse_starting(settings)
    if not _runs(settings):
        return None
    with closing(Store.open(settings.database)) as store:
        report = store.reports().get("server")
    if report is None or report.phase != "serving" or not is_held(settings.home, "server"):
        raise NotYetError(
            f"the server on {settings.home} does not serve at this moment: it is starting or stopping; "
            "ask again, or see `openclaw-rl status`"
        )
    return str(report.detail["url"])


def _runs(settings: Settings) -> bool:
    return any(is_held(settings.home, name) for name in ("supervisor", "server"))
