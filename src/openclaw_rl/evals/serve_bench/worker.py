"""A program that is measured in a process of its own: told what to do and answering in lines of JSON.

`Worker` is the measurement's side of it and `answer` the program's. Knows no model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from openclaw_rl.config import ConfigError

STOP_SECONDS = 20.0

Facts = dict[str, Any]


class Worker:
    """A running program. It has answered once, so it is ready, when this is made."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Raises ConfigError when it ends before it is ready."""
        self._name = name
        self._log = log
        command = [sys.executable, "-m", module, *arguments]
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
            )
        self._asked = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)
        try:
            self.about = self._answer()
            """What the program said of itself."""
        except BaseException:
            self.close()
            raise

    def ask(self, asked: Facts) -> Facts:
        """Have one thing done. Raises ConfigError when the program ends instead."""
        self._asked.write(json.dumps(asked).encode() + b"\n")
        self._asked.flush()
        return self._answer()

    def close(self) -> None:
        """End it."""
        with suppress(BrokenPipeError):
            self._asked.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def _answer(self) -> Facts:
        line = self._answers.readline()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise ConfigError(f"{self._name} could not be measured: {(said or ['it said nothing'])[-1]}")
        answer: Facts = json.loads(line)
        return answer


def answer(about: Facts, do: Callable[[Facts], Facts]) -> None:
    """The program's side: say that it is ready, then do what is asked until nobody asks any more."""
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)
