"""A process that another one started ends with it, however that one ended.

A supervisor that is killed cannot stop its children, and children that live on would hold the port and the
data folder against the next `up`. Unix: an orphan gets another parent.
"""

from __future__ import annotations

import os
import signal
import threading
import time


def end_with(parent: int) -> None:
    """From now on, once `parent` is no longer this process's parent, ask this process to stop (SIGTERM)."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
