"""The judge bench: its halves are what they claim to be, its arithmetic is right, its command works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from openclaw_rl.config import ConfigError
from openclaw_rl.evals.judge_bench import training_text
from openclaw_rl.evals.judge_bench.agreement import (
    Opinion,
    Share,
    agreement,
    by_kind,
    confusion,
    hint_precision,
    hint_recall,
    unjudged_because,
)
from openclaw_rl.evals.judge_bench.cases import Case, halves, load, spread
from openclaw_rl.judge.transcript import words_of

NEAREST = 0.5
"""Share of common letter runs (Jaccard) from which two sentences count as one that was only touched up."""

DEVELOPMENT, HELD_OUT = load("development"), load("held_out")


def said_by_users(cases: list[Case]) -> list[str]:
    spoken = [case.next_state.messages[0] for case in cases]
    return [words_of(message) for message in spoken if message["role"] == "user"]


def letter_runs(text: str) -> frozenset[str]:
    """Runs of four letters, for Chinese of two characters, without case and punctuation."""
    plain = " ".join("".join(c for c in text.lower() if c.isalnum() or c == " ").split())
    size = 2 if re.search(r"[\u4e00-\u9fff]", plain) else 4
    return frozenset(plain[i : i + size] for i in range(max(1, len(plain) - size + 1)))


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / len(left | right)


def opinion(case: Case, score: int | None, hinted: bool = False) -> Opinion:
    return Opinion(case, score, hinted, "" if score is not None else "unread: no boxed answer")


def test_there_are_at_least_four_hundred_cases_in_two_languages_with_all_three_labels():
    cases = DEVELOPMENT + HELD_OUT
    assert len(cases) >= 400
    assert len({case.id for case in cases}) == len(cases)
    assert Counter(case.language for case in cases)["zh"] >= 80
    assert min(Counter(case.score for case in HELD_OUT).values()) >= 30


def test_both_halves_have_as_many_cases_of_each_kind():
    assert Counter(case.kind for case in DEVELOPMENT) == Counter(case.kind for case in HELD_OUT)


def test_a_hint_is_only_expected_of_what_is_negative():
    assert [case.id for case in DEVELOPMENT + HELD_OUT if case.hint and case.score != -1] == []


def test_no_request_and_no_user_s_wording_is_in_both_halves():
    asked = [{case.turn.messages[0]["content"] for case in half} for half in (DEVELOPMENT, HELD_OUT)]
    assert asked[0] & asked[1] == set()
    theirs = [letter_runs(text) for text in said_by_users(DEVELOPMENT)]
    near = [
        text
        for text in said_by_users(HELD_OUT)
        if max(overlap(letter_runs(text), other) for other in theirs) >= NEAREST
    ]
    assert near == []


def test_no_training_sentence_is_near_to_a_held_out_one():
    held_out = [letter_runs(text) for text in said_by_users(HELD_OUT)]
    near = [
        sentence
        for sentence in training_text.sentences()
        if max(overlap(letter_runs(sentence), other) for other in held_out) > NEAREST
    ]
    assert near == []


def test_the_training_text_never_takes_from_the_held_out_half():
    theirs = {case.turn.messages[0]["content"] for case in HELD_OUT}
    examples = training_text.examples() + training_text.development_examples()
    assert {example.request for example in examples} & theirs == set()


def test_wilson_s_interval_is_that_of_the_textbook():
    low, high = Share(8, 10).interval
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert Share(0, 0).interval == (0.0, 0.0)


def test_an_unjudged_turn_agrees_with_no_label():
    neutral = next(case for case in DEVELOPMENT if case.score == 0)
    opinions = [opinion(neutral, None), opinion(neutral, 0)]
    assert agreement(opinions) == Share(1, 2)
    assert confusion(opinions)["0"] == {"+1": 0, "0": 1, "-1": 0, "none": 1}
    assert unjudged_because(opinions) == {"unread: no boxed answer": 1}
    assert by_kind(opinions) == {neutral.kind: Share(1, 2)}


def test_hint_precision_counts_the_hints_given_and_recall_those_wanted():
    wants = next(case for case in DEVELOPMENT if case.hint)
    wants_none = next(case for case in DEVELOPMENT if not case.hint)
    opinions = [opinion(wants, -1, True), opinion(wants, -1), opinion(wants_none, -1, True)]
    assert hint_precision(opinions) == Share(1, 2)
    assert hint_recall(opinions) == Share(1, 2)


def test_a_sample_keeps_the_shares_of_the_kinds():
    few = spread(HELD_OUT, 50)
    assert len(few) == len({case.id for case in few}) == 50
    whole, part = (Counter(case.kind for case in cases) for cases in (HELD_OUT, few))
    assert all(abs(part[kind] - whole[kind] * 50 / len(HELD_OUT)) < 1 for kind in whole)


def test_a_half_that_is_none_is_refused_with_the_names_that_are():
    assert halves("all") == ("development", "held_out")
    with pytest.raises(ConfigError, match="development or held_out"):
        halves("dev")


def test_the_command_prints_a_table_and_writes_the_numbers(tmp_path: Path):
    written = tmp_path / "deep" / "numbers.json"
    command = ["-m", "openclaw_rl", "bench", "judge", "--half", "development", "--json", str(written)]
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "asked again" in result.stdout
    numbers = json.loads(written.read_text(encoding="utf-8"))
    rules = numbers["judges"]["rules"]
    assert rules["accuracy"] == rules["development"]["accuracy"] >= 0.9
    assert rules["low"] < rules["accuracy"] < rules["high"] or rules["accuracy"] == 1
    assert sum(sum(row.values()) for row in rules["confusion"].values()) == len(DEVELOPMENT)
    assert numbers["cases"] == {"development": len(DEVELOPMENT)}


def test_a_judge_that_is_none_is_one_line_with_the_fix():
    command = [sys.executable, "-m", "openclaw_rl", "bench", "judge", "--judge", "oracle"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "rules, self, or a base URL" in result.stderr
