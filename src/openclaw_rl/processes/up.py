"""Server and learner as two child processes of this one, kept going until Ctrl-C.

If one of them ends it is started again; the other goes on. Knows neither requests nor weights.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from openclaw_rl import process_environment

LONGEST_BACKOFF_SECONDS = 30.0
STOP_SECONDS = 60.0
"""A learner may finish its update; after this it is killed, which loses nothing but the update."""

Say = Callable[[str], None]


REFUSED = 2
"""The exit status of a process whose user must mend something first; it has said what in one line."""


class ChildRefusedError(RuntimeError):
    """A process cannot start as it is told to; starting it again would not help."""


@dataclass(slots=True)
class Child:
    """One of our processes."""

    name: str
    arguments: Sequence[str]
    output: Path | None = None
    """Where it writes what it has to say; None is our own terminal."""
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0
    start_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        command = [sys.executable, "-m", "openclaw_rl", *self.arguments]
        # A process group of its own, so that Ctrl-C reaches us alone and we stop both in order; not a
        # session of its own, since Linux weighs sessions against each other whatever their priorities.
        with ExitStack() as files:
            said = files.enter_context(self.output.open("ab")) if self.output else None
            self.process = subprocess.Popen(
                command, env=process_environment.ours(), process_group=0, stdout=said, stderr=said
            )

    def tend(self, say: Say) -> None:
        """Start it when it is due; notice when it has ended. Raises ChildRefusedError."""
        if self.process is None:
            if time.monotonic() >= self.start_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        self.process = None
        if code == REFUSED:
            raise ChildRefusedError(f"the {self.name} cannot run; see {self.output or 'above'}")
        ran_well = time.monotonic() - self.start_at > 2 * LONGEST_BACKOFF_SECONDS
        self.failures = 1 if ran_well else self.failures + 1
        wait = min(LONGEST_BACKOFF_SECONDS, 0.5 * 2 ** min(self.failures, 8))
        self.start_at = time.monotonic() + wait
        say(f"the {self.name} ended with status {code}; starting it again in {wait:.0f} s")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Supervisor:
    """Keeps the server and the learner going."""

    def __init__(self, flags: Sequence[str], say: Say, output: Path | None = None) -> None:
        """`flags` are the settings' flags that both processes are started with, `output` is as a Child's."""
        parent = ["--parent", str(os.getpid())]
        self._children = [
            Child("server", ["serve", *parent, *flags], output),
            Child("learner", ["learn", *parent, *flags], output),
        ]
        self._say = say
        self._stop = threading.Event()

    def run(self) -> None:
        """Until SIGINT or SIGTERM. Raises ChildRefusedError, with both stopped, if one cannot start."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            while not self._stop.is_set():
                self.tend()
                self._stop.wait(0.2)
            self._say("stopping the server and the learner; an update that has begun is finished first")
        finally:
            self.stop()

    def tend(self) -> None:
        for child in self._children:
            child.tend(self._say)

    def stop(self) -> None:
        """Stop both, the server first, and wait for them."""
        for child in self._children:
            child.stop()
        for child in self._children:
            child.wait()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()
