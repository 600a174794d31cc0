"""`openclaw-rl bench sessions` as people run it, and the arithmetic of its scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from openclaw_rl.evals.session_bench import scores, script
from openclaw_rl.evals.session_bench.runner import Observed
from openclaw_rl.evals.session_bench.script import Conversation, Label, Reply, Step


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command writes."""
    file = tmp_path_factory.mktemp("bench") / "deep" / "sessions.json"
    command = [sys.executable, "-m", "openclaw_rl", "bench", "sessions", "--failures", "--json", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "held out" in ran.stdout
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_next_states_are_paired_with_high_precision_and_recall(written: dict[str, Any]) -> None:
    assert written["conversations"] == len(script.load()) >= 60
    for part in (written, written["development"], written["held_out"]):
        assert part["precision"] >= 0.98
        assert part["recall"] >= 0.95


def test_main_lines_and_sessions_are_found_too(written: dict[str, Any]) -> None:
    assert written["main_side"]["precision"] >= 0.98
    assert written["main_side"]["recall"] >= 0.98
    assert written["joins"]["precision"] >= 0.98
    assert written["joins"]["recall"] >= 0.9


def test_no_kind_of_conversation_is_left_behind(written: dict[str, Any]) -> None:
    assert {one.kind for one in script.load()} == written["by_kind"].keys()
    for kind, of_kind in written["by_kind"].items():
        # Of a window that holds one reply and nothing before it nobody can say whose it is.
        least = 0.7 if kind == "sliding window" else 0.75
        assert of_kind["precision"] >= 0.9, kind
        assert of_kind["recall"] >= least, kind


def observed(number: int, label: Label, kind: str, session: str, *next_state: str) -> Observed:
    conversation = Conversation("c", "k", "sdk", "", False, {}, {}, ())
    step = Step(str(number), Reply("x"))
    return Observed(conversation, step, label, kind, session, "why", next_state or None)


def test_each_score_counts_what_is_right_said_and_wanted() -> None:
    seen = [
        observed(1, Label("main", "a", None, ()), "main", "s1", "two"),
        observed(2, Label("main", "a", "1", ("two ",)), "main", "s1", "wrong words"),
        observed(3, Label("main", "a", "2", ("three",)), "main", "s2", "four"),
        observed(4, Label("main", "b", None, ()), "side", "s2"),
        observed(5, Label("side", "a", None, ()), "main", "s1"),
    ]
    paired = scores.pairing(seen)
    assert (paired.right, paired.said, paired.wanted) == (1, 3, 2)
    assert (paired.precision, paired.recall) == (pytest.approx(1 / 3), 0.5)
    main = scores.main_lines(seen)
    assert (main.right, main.said, main.wanted) == (3, 4, 4)
    joined = scores.joins(seen)
    assert (joined.right, joined.said, joined.wanted) == (1, 2, 3)
    whats = [failure.what for failure in scores.failures(seen)]
    assert whats.count("kind") == 2
    assert whats.count("next state") == 2
    assert whats.count("session") == 2


def test_nothing_said_and_nothing_wanted_is_no_failure() -> None:
    nothing = scores.pairing([observed(1, Label("main", "a", None, ()), "main", "s")])
    assert (nothing.precision, nothing.recall) == (1.0, 1.0)
