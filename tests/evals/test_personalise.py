"""The experiment: one update on a tiny model through real processes, run files, and what they come to."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from openclaw_rl.cli.measure import personalise
from openclaw_rl.config import ConfigError
from openclaw_rl.evals.personalise import bench, report, table
from openclaw_rl.evals.personalise.bench import Bench
from openclaw_rl.evals.personalise.conversations import sessions_until_pleased
from openclaw_rl.evals.personalise.frozen import UNRELATED, Frozen
from openclaw_rl.evals.personalise.memory import KEPT, OPENING, Memory
from openclaw_rl.evals.personalise.methods import METHODS
from openclaw_rl.evals.personalise.personas import PERSONAS
from openclaw_rl.evals.personalise.questions import questions
from openclaw_rl.evals.personalise.run import Plan, Progress, Run
from openclaw_rl.evals.personalise.run_file import Measurement, RunFile, load_all

MEASUREMENT = Measurement(4, "11su1b1111", 64, 100.0, -1.5, 0.1, 20.0, ("q -> a",))
RUN = RunFile(
    "student",
    "hybrid",
    0,
    (MEASUREMENT,),
    first_replies="0011101",
    sessions=5,
    turns=64,
    seconds=120.0,
    moods={"pleased": 3},
    judged={"pleased": {"+1": 3, "0": 0, "-1": 0, "hint": 0}},
    provenance={"commit": "abc"},
)


def with_score(seed: int, method: str, ones: int) -> RunFile:
    scored = replace(MEASUREMENT, pleases="1" * ones + "s" * (10 - ones))
    return replace(RUN, seed=seed, method=method, measurements=(scored,))


@pytest.fixture(scope="module")
def learned(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFile:
    """One update of the default method, from a user who talks to a model of random weights."""
    first = dict(list(questions("held_out").items())[:3])
    plan = Plan(
        PERSONAS["student"],
        METHODS["hybrid"],
        0,
        (1,),
        questions("train"),
        first,
        model=str(model_folder),
        batch=4,
        max_tokens=8,
        settings={
            "engine.threads": 1,
            "learn.threads": 1,
            "model.dtype": "float32",
        },
    )
    return Run(plan, tmp_path_factory.mktemp("runs") / "work", Progress(), print).run()


def test_a_run_talks_learns_and_measures(learned: RunFile) -> None:
    (measured,) = learned.measurements
    assert measured.updates == 1
    assert len(measured.pleases) == 3
    assert measured.turns >= 4
    assert measured.drift > 0  # the weights have changed
    assert measured.hinted_log_prob < 0
    assert learned.turns >= measured.turns
    assert sum(learned.moods.values()) == learned.turns
    assert set(learned.first_replies) <= set("01?")
    judged = learned.judged
    trained = sum(row["+1"] + row["0"] + row["-1"] for row in judged.values())
    assert trained >= 4
    assert trained % 4 == 0  # whole batches
    assert learned.provenance["model"]
    assert learned.provenance["commit"]


@pytest.mark.slow
def test_a_method_that_does_not_talk_is_measured_once_and_leaves_no_folder(
    tmp_path: Path, model_folder: Path
) -> None:
    plan = Plan(
        PERSONAS["brief"],
        METHODS["base"],
        0,
        (1,),
        questions("train"),
        dict(list(questions("held_out").items())[:2]),
        model=str(model_folder),
        max_tokens=8,
        settings={"engine.threads": 1, "model.dtype": "float32"},
    )
    found = Run(plan, tmp_path / "work", Progress(), print).run()
    assert [one.updates for one in found.measurements] == [0]
    assert found.turns == 0
    assert found.measurements[0].drift == 0
    assert not (tmp_path / "work").exists()


def test_a_run_file_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = RUN.save(tmp_path)
    assert path.name == "student-hybrid-seed0.json"
    assert RunFile.load(path) == RUN
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert load_all(tmp_path) == [RUN]


def test_a_measurement_counts_what_pleases_and_what_fails() -> None:
    assert (MEASUREMENT.score, MEASUREMENT.style, MEASUREMENT.useful) == (0.7, 0.8, 0.8)


@pytest.mark.parametrize(
    ("first_replies", "sessions"),
    [
        ("111", 3),
        ("0110111", 7),
        ("1101100", None),
        ("", None),
        ("11?111", 6),
        ("0" * 69 + "111", 72),
        ("0" * 70 + "111", None),
    ],
)
def test_sessions_are_counted_up_to_three_in_a_row(first_replies: str, sessions: int | None) -> None:
    assert sessions_until_pleased(first_replies) == sessions


def test_the_interval_is_students_over_seeds() -> None:
    low, high = table.interval([0.8, 0.9, 1.0], questions=64)
    assert low == pytest.approx(0.9 - 4.303 * 0.1 / 3**0.5)
    assert high == 1.0  # a share


def test_a_lone_run_has_the_interval_of_its_questions() -> None:
    low, high = table.interval([0.5], questions=64)
    assert (round(low, 3), round(high, 3)) == (0.381, 0.619)


def test_rows_are_means_over_seeds_in_the_order_of_the_methods() -> None:
    runs = [with_score(seed, method, ones) for method in ("opd", "hybrid") for seed, ones in ((0, 6), (1, 8))]
    found = table.rows(runs)
    assert [(row.method, row.updates, row.seeds) for row in found] == [("hybrid", 4, 2), ("opd", 4, 2)]
    assert found[0].mean == pytest.approx(0.7)
    assert found[0].usefulness == 1.0
    needed = {"persona", "method", "updates", "mean", "low", "high", "seeds", "usefulness"}
    assert needed <= found[0].to_json().keys()


def test_runs_that_never_got_there_count_as_the_most_sessions() -> None:
    runs = [RUN, replace(RUN, seed=1, sessions=None)]
    (found,) = table.sessions(runs, 72)
    assert (found.mean, found.seeds, found.reached) == (38.5, 2, 1)


def test_finished_runs_are_not_wanted_again_and_seeds_are_the_outer_loop(tmp_path: Path) -> None:
    wide = Bench(["student", "brief"], ["base", "hybrid", "opd"], range(2), 16, tmp_path, tmp_path, {})
    wanted = [(one.seed, one.persona.name, one.method.name) for one in wide.wanted()]
    assert wanted == [
        (0, "student", "base"),
        (0, "student", "hybrid"),
        (0, "student", "opd"),
        (0, "brief", "base"),
        (0, "brief", "hybrid"),
        (0, "brief", "opd"),
        (1, "student", "hybrid"),
        (1, "student", "opd"),
        (1, "brief", "hybrid"),
        (1, "brief", "opd"),
    ]
    RUN.save(tmp_path)
    missing = [(one.seed, one.persona.name, one.method.name) for one in wide.missing()]
    assert missing == [one for one in wanted if one != (0, "student", "hybrid")]


class ShortRun:
    """Does what a run says of itself, and nothing else."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress, say: Callable[[str], None]) -> None:
        self._progress = progress

    def run(self) -> RunFile:
        for doing, updates in (("talking", 3), ("measuring after update 4", 4)):
            self._progress.doing, self._progress.updates, self._progress.turns = doing, updates, 16 * updates
            time.sleep(0.3)
        return RUN


def test_a_run_says_in_a_log_file_what_it_does_as_each_step_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(bench, "Run", ShortRun)
    monkeypatch.setattr(bench, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(bench, "Console", lambda: Console(file=out, width=80))
    monkeypatch.setattr(bench.model_files, "resolve", lambda *_: tmp_path)
    Bench(["student"], ["hybrid"], [0], 4, tmp_path / "runs", tmp_path, {}).run(None)
    told = [line for line in out.getvalue().splitlines() if line.startswith("run 1 of 1: ")]
    assert told == [
        "run 1 of 1: student hybrid seed 0, talking, 3 of 4 updates, 48 turns",
        "run 1 of 1: student hybrid seed 0, measuring after update 4, 4 of 4 updates, 64 turns",
    ]


def test_the_table_is_written_from_the_run_files(tmp_path: Path) -> None:
    RUN.save(tmp_path / "runs")
    Bench(["student"], ["hybrid"], [0], 4, tmp_path / "runs", tmp_path, {}).report(tmp_path / "table.json")
    written = json.loads((tmp_path / "table.json").read_text())
    (row,) = written["table"]
    assert (row["persona"], row["method"], row["mean"]) == ("student", "hybrid", 0.7)
    assert written["sessions"][0]["mean"] == 5
    assert written["runs"][0]["commit"] == "abc"


def test_memory_keeps_the_newest_wishes_once_each() -> None:
    memory = Memory()
    assert memory.system_prompt == ""
    question, reply = "Why do leaves fall?", "Because trees save water. " * 20
    memory.note("Great, thank you!", question, reply)
    assert memory.system_prompt == ""
    wishes = [f"Too long. Answer in {count} short sentences." for count in ("two", "three", "four", "five")]
    for words in (*wishes, wishes[-1]):
        memory.note(words, question, reply)
    kept = memory.system_prompt.splitlines()
    assert kept[0] == OPENING
    assert len(kept) == 1 + KEPT
    assert kept[-1] == "- Answer in five short sentences."


def test_the_frozen_base_says_how_likely_replies_are(model_folder: Path) -> None:
    torch.set_num_threads(1)
    frozen = Frozen(str(model_folder), print)
    replies = ["a b c", "the capital of France"]
    plain = frozen.log_prob(["Why?", "What?"], replies, "Be short.")
    other = frozen.log_prob(["Why?", "What?"], replies, "Write a lot.")
    assert plain < 0
    assert plain != other
    assert frozen.log_prob(["Why?"], [""], "Be short.") == 0.0
    assert frozen.drift(None, UNRELATED[:1], ["a"]) == 0.0


def test_the_report_page_stands_alone_and_shows_every_method(tmp_path: Path) -> None:
    runs = [
        replace(with_score(0, "base", 1), first_replies=""),
        with_score(0, "hinted", 9),
        *(with_score(seed, method, 7) for method in ("hybrid", "binary") for seed in (0, 1)),
    ]
    report.page(runs, tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert "<svg" in written
    for method in ("base", "hinted", "hybrid", "binary"):
        assert f"<td>{method}</td>" in written
    assert "<td>abc</td>" in written  # the commit
    report.draw(runs, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("personas", [["brief"], ["brief", "phone"], list(PERSONAS)])
def test_every_method_is_in_the_legend_and_the_legend_in_the_picture(personas: list[str]) -> None:
    runs = [
        replace(with_score(seed, method, 7), persona=persona)
        for persona in personas
        for method in METHODS
        for seed in (0, 1)
    ]
    figure = report.curves(table.rows(runs))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {*METHODS} - {"base", "hinted"} | {
        "the base, told"
    }
    inside = legend.get_window_extent()
    assert 0 <= inside.x0 < inside.x1 <= figure.bbox.x1
    assert 0 <= inside.y0 < inside.y1 <= figure.bbox.y1


@pytest.mark.parametrize(("persona", "method"), [(None, ["magic"]), (["hybrid"], None)])
def test_an_unknown_name_is_refused_with_those_that_are_known(
    persona: list[str] | None, method: list[str] | None
) -> None:
    with pytest.raises(ConfigError, match=r"knows no (magic|hybrid); choose from (base|brief), "):
        personalise(persona=persona, method=method)
