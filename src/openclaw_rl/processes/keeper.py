"""Keeps another program running as long as the process that wants it, and surely ends it after that.

`python -m openclaw_rl.processes.keeper PARENT COMMAND…`: the program gets a process group of its own. It is
started anew when it ends, unless it ended soon after its start. When we are told to stop, or PARENT is no
more, the whole group is asked to end, and killed if it does not. Knows nothing of the program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

SOON_SECONDS = 60.0
"""A program that ends so soon would only do so again."""
END_SECONDS = 10.0
"""After this the group is killed."""
_PAUSE = 0.2


def keep(parent: int, command: Sequence[str]) -> int:
    """Run `command` until told to stop; returns the exit status for this process."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while True:
        started = time.monotonic()
        program = subprocess.Popen(command, start_new_session=True)
        try:
            while program.poll() is None and not stop.is_set() and os.getppid() == parent:
                stop.wait(_PAUSE)
        finally:
            code = program.poll()
            end_group(program)
        if code is None:
            return 0
        print(f"it ended with status {code}", file=sys.stderr, flush=True)
        if time.monotonic() - started < SOON_SECONDS:
            return 1


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and all that is left of the group. Some programs cannot be asked to
    end while they start, and their children outlive them."""
    _signal(leader.pid, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and (leader.poll() is None or _signal(leader.pid, 0)):
        time.sleep(_PAUSE)
    _signal(leader.pid, signal.SIGKILL)
    leader.wait()


def _signal(group: int, number: int) -> bool:
    """Whether there was anybody left to get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of dead processes
        return False
    return True


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), sys.argv[2:]))
