"""The newest good policy version becomes the serving one, and the store is told what happened.

The learner writes versions into the store; here they are noticed, handed to the engine and marked. A
version whose weights are at fault is rejected and the one before it goes on serving; one that cannot be
loaded just now is tried again. Knows no weights.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from anyio import to_thread

from openclaw_rl.model import PolicyVersion, VersionState
from openclaw_rl.policy.engine import BadVersionError, EngineError, PolicyEngine
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


class Publication:
    def __init__(self, store: Store, engine: PolicyEngine) -> None:
        self._learning = store.learning
        self._engine = engine
        self.ready = False
        """True once a good version of the store has served."""

    async def bring_up_to_date(self) -> None:
        """Serve the newest version that the engine accepts.

        Raises EngineError when a version may be good and cannot be loaded now, or when even the base,
        which is never rejected, is refused. After a restart the version that served before serves meanwhile.
        """
        newest = await to_thread.run_sync(self._learning.newest_good_version)
        try:
            while not await self._serve(newest):
                newest = await to_thread.run_sync(self._learning.newest_good_version)
        except EngineError:
            if not self.ready:
                await self._serve_as_before(newest)
            raise
        self.ready = True

    async def _serve_as_before(self, failed: PolicyVersion) -> None:
        before = await to_thread.run_sync(self._learning.serving_version)
        if before is not None and before.number != failed.number:
            with suppress(EngineError):
                await self._engine.publish(before)
                self.ready = True

    async def _serve(self, version: PolicyVersion) -> bool:
        if version.number != self._engine.serving_version:
            try:
                await self._engine.publish(version)
            except BadVersionError as error:
                if version.number == 0:
                    raise
                log.warning("policy version %d was rejected: %s", version.number, error)
                await to_thread.run_sync(self._learning.mark_rejected, version.number, str(error))
                return False
            log.info("policy version %d serves", version.number)
        elif version.state is VersionState.SERVING:
            return True
        return await to_thread.run_sync(self._learning.mark_serving, version.number)
