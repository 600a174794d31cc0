"""What the demo shows while it runs: a live panel below a log of what happened.

On a terminal the panel redraws itself; in a pipe or file only the log is written. Reads nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openclaw_rl.evals.demo_run import DemoRun
from openclaw_rl.evals.held_out import Evaluation, ScoredReply


@dataclass(slots=True)
class Now:
    """The moving facts of the panel."""

    doing: str = "starting"
    update: int = 0
    collected: int = 0
    needed: int = 16
    tokens_per_second: float = 0.0
    version: int = 0
    learner: str = "starting"
    score: float | None = None
    lessons: list[str] = field(default_factory=list)


class Screen:
    """A context manager: inside it the panel is live."""

    def __init__(self, run: DemoRun) -> None:
        self.console = Console()
        self.now = Now()
        self._run = run
        self._live = Live(console=self.console, get_renderable=self._panel, refresh_per_second=4)

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def log(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False, highlight=False)

    def _panel(self) -> RenderableType:
        now = self.now
        facts = Table.grid(padding=(0, 2))
        facts.add_row(
            "update",
            ProgressBar(total=self._run.updates, completed=now.update, width=30),
            f"{now.update} of {self._run.updates}",
        )
        facts.add_row(
            "samples",
            ProgressBar(total=now.needed, completed=now.collected, width=30),
            f"{now.collected} of {now.needed} for the next one",
        )
        facts.add_row("serving", f"version {now.version}", f"{now.tokens_per_second:.0f} tokens/s")
        facts.add_row("learner", now.learner, "")
        score = "not measured yet" if now.score is None else f"{now.score:.2f}"
        facts.add_row("score", score, "of held-out first replies please")
        lessons = [Text(lesson, overflow="ellipsis", no_wrap=True) for lesson in now.lessons[-4:]]
        return Panel(Group(facts, *lessons), title=f"OpenClaw-RL demo: {now.doing}", title_align="left")


def score_table(evaluations: list[Evaluation], ceiling: Evaluation | None) -> Table:
    """Scores at the start, after each evaluated update, and of the hinted teacher."""
    table = Table("held-out first replies", "score", "style", "useful", title_justify="left")
    for one in evaluations:
        name = "start" if one.version == 0 else f"after update {one.version}"
        table.add_row(name, f"{one.score:.2f}", f"{one.style:.2f}", f"{one.useful:.2f}")
    if ceiling is not None:
        table.add_section()
        table.add_row(
            "the hinted teacher", f"{ceiling.score:.2f}", f"{ceiling.style:.2f}", f"{ceiling.useful:.2f}"
        )
    return table


def reply_pairs(before: Evaluation, after: Evaluation, most: int = 3) -> list[tuple[str, str, str]]:
    """(question, reply before, reply after), those first in which a reply began to please."""
    pairs = [
        (new.pleases and not old.pleases, old.question, _shown(old), _shown(new))
        for old, new in zip(before.replies, after.replies, strict=True)
    ]
    pairs.sort(key=lambda pair: not pair[0])
    return [(question, old, new) for _, question, old, new in pairs[:most]]


def _shown(reply: ScoredReply) -> str:
    return reply.reply if reply.finished else f"{reply.reply.rstrip()} …"
