"""What is to be measured and with what: the same for every part. And what shows how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from openclaw_rl.config import LearnSettings
from openclaw_rl.evals.progress_lines import ProgressLines
from openclaw_rl.evals.serve_bench.measure import Job
from openclaw_rl.evals.update_bench.work import QUESTION

SERVED = "bench"
"""What our servers call the model."""
TEMPERATURE = 0.7
MOST_OVER_HTTP = 8
"""Streams of the parts that measure servers, at most."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`settings` are those of our own processes, by dotted name; they hold the endless model already."""

    settings: Mapping[str, object]
    model_folder: Path
    """The endless one."""
    adapter_folder: Path
    """Version 1: a random adapter of the size that is learned."""
    context: int
    """The most tokens that the model takes."""
    dtype: str
    device: str
    threads: int
    streams: tuple[int, ...]
    """How many replies at the same time, ascending."""
    tokens: int
    """New ones of each reply."""
    rounds: int
    long: int
    """Tokens of the long prompt of the part `reuse`."""
    learn: LearnSettings
    """Of the processes, and of the adapter."""
    updates: int
    """That the learner takes while replies are made."""
    sessions: tuple[int, ...]
    """After how many of them memory is read, ascending."""
    scratch: Path
    python_with_vllm: Path | None = None
    log: Path = field(init=False)
    """Where the processes write what they have to say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "log", self.scratch / "processes.log")

    @property
    def over_http(self) -> tuple[int, ...]:
        """One, and as many streams as servers are measured with."""
        most = max((n for n in self.streams if n <= MOST_OVER_HTTP), default=self.streams[0])
        return tuple(sorted({self.streams[0], most}))

    def job(self, name: str, streams: int, tokens: int = 0) -> Job:
        """Prompts that nobody was asked before, if `name` is new; the same for the same name."""
        prompts = tuple(f"{name}, case {place}. {QUESTION}" for place in range(streams))
        return Job(prompts, tokens or self.tokens)


class Steps:
    """The progress bar; lines where there is no terminal. `console` is what everything else is written to."""

    def __init__(self, console: Console) -> None:
        is_terminal = console.is_terminal
        self._progress = Progress(console=console, transient=True, disable=not is_terminal)
        self._lines = None if is_terminal else ProgressLines(lambda text: console.print(text, markup=False))
        self._task: TaskID | None = None
        self._part = ""

    @contextmanager
    def part(self, name: str, total: int) -> Iterator[None]:
        """A part of so many steps."""
        self._task = self._progress.add_task(name, total=total)
        self._part = name
        self._tell()
        with self._progress:
            try:
                yield
            finally:
                self._progress.remove_task(self._task)
                self._task = None

    def begin(self, what: str) -> None:
        """Say what is done now."""
        if self._task is not None:
            self._progress.update(self._task, description=what)
            self._tell()

    def done(self) -> None:
        """One step further."""
        if self._task is not None:
            self._progress.advance(self._task)
            self._tell()

    def _tell(self) -> None:
        if self._lines is None:
            return
        (task,) = self._progress.tasks
        step = self._part if task.description == self._part else f"{self._part}: {task.description}"
        self._lines.tell(step, f"{step} ({task.completed:g} of {task.total:g} done)")
