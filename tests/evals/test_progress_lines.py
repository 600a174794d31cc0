"""How far a measurement is, where no terminal shows a bar: in lines, one a step, and some in long ones."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count

from rich.console import Console

from openclaw_rl.evals.progress_lines import ProgressLines
from openclaw_rl.evals.serve_bench.plan import Steps


def test_a_step_has_a_line_when_it_begins_and_another_after_half_a_minute() -> None:
    said: list[str] = []
    moments: Iterator[int] = count(0, 10)
    lines = ProgressLines(said.append, clock=lambda: float(next(moments)))
    for step, text in [
        ("a", "a 0"),
        ("a", "a 10"),
        ("a", "a 20"),
        ("a", "a 30"),
        ("b", "b 40"),
        ("b", "b 50"),
    ]:
        lines.tell(step, text)
    assert said == ["a 0", "a 30", "b 40"]


def steps_on(console: Console) -> None:
    steps = Steps(console)
    with steps.part("gateway", 3):
        steps.begin("starting the engine [again]")
        steps.done()
        steps.begin("first tokens")
        steps.done()
    steps.begin("nothing")  # after its end a part says nothing


def test_a_pipe_gets_each_step_as_it_begins() -> None:
    out = io.StringIO()
    steps_on(Console(file=out, width=120))
    assert out.getvalue().splitlines() == [
        "gateway (0 of 3 done)",
        "gateway: starting the engine [again] (0 of 3 done)",
        "gateway: first tokens (1 of 3 done)",
    ]


def test_a_terminal_gets_a_bar_and_no_lines() -> None:
    out = io.StringIO()
    steps_on(Console(file=out, width=120, force_terminal=True))
    assert "━" in out.getvalue()
    assert "done)" not in out.getvalue()
