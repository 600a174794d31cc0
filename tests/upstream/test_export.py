"""The store as lines: what each says, which are chosen, and that a large store goes by in little memory."""

from __future__ import annotations

import json
import sqlite3
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl import cli
from openclaw_rl.folder_key import FolderKey
from openclaw_rl.model import (
    OTHER_MODEL,
    Judgement,
    Sampling,
    Score,
    Turn,
    TurnKind,
    TurnState,
    Vote,
)
from openclaw_rl.store import Store

TOOL = {"type": "function", "function": {"name": "ls"}}
TURN = Turn(
    id="turn_1",
    session_id="sess_1",
    kind=TurnKind.MAIN,
    kind_reason="nothing marks it as a helper call",
    state=TurnState.WAITING_NEXT_STATE,
    model="big",
    policy_version=OTHER_MODEL,
    messages=({"role": "user", "content": "caf\u00e9? \ud83d"},),
    tools=(TOOL,),
    reply={"role": "assistant", "content": "yes", "reasoning_content": "Hm.", "unread_tool_calls": 1},
    prompt_ids=(),
    response_ids=(),
    logprobs=(),
    sampling=Sampling(),
    finish_reason="stop",
    created_at=1.0,
    finished_at=2.0,
    conversation_hash="h1",
)
OURS = replace(
    TURN,
    id="turn_2",
    model="tiny",
    policy_version=3,
    tools=(),
    prompt_ids=(1,),
    response_ids=(2,),
    logprobs=(-0.5,),
    finished_at=3.0,
)
SIDE = replace(TURN, id="turn_3", kind=TurnKind.SIDE, state=TurnState.SIDE, finished_at=4.0)
USAGE = {"prompt_tokens": 7}


def judge(store: Store, turn: str, score: Score | None, hint: str | None, number: int = 1) -> None:
    state = store.conversations.add_next_state(
        turn, "conversation", [{"role": "user", "content": f"n{number}"}]
    )
    votes = (Vote("evaluative", score, raw="a long thought"), Vote("directive", 1, hint=hint))
    judgement = Judgement(f"j_{turn}_{number}", turn, state.id, "rules", score, hint, votes, float(number))
    store.learning.add_judgement(judgement)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another model's turn, judged twice; one of ours, judged well; a side turn."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    store = Store.open(folder / "store.sqlite")
    store.conversations.open_session("sess_1", "caller_1")
    store.recordings.add([TURN], "chatcmpl-1", USAGE)
    store.conversations.add_turn(OURS)
    store.conversations.add_turn(SIDE)
    judge(store, "turn_1", 1, None)
    judge(store, "turn_1", -1, "Answer in full, please.", 2)
    judge(store, "turn_2", 1, None)
    store.close()
    return folder


def exported(data: Path, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(
        cli.app, ["export", "--data-dir", str(data), *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_line_says_all_that_is_known_of_a_turn(data: Path) -> None:
    line = exported(data)[0]
    assert line.pop("session") == FolderKey(data).opaque("session", "sess_1") != "sess_1"
    state = line.pop("next_state")
    assert (state.pop("created_at") > 0) is True
    assert state == {
        "source": "conversation",
        "messages": [{"role": "user", "content": "n2"}],
        "given_score": None,
    }
    assert line == {
        "turn_id": "turn_1",
        "parent_id": None,
        "kind": "main",
        "kind_reason": "nothing marks it as a helper call",
        "state": "recorded",
        "state_reason": "recorded: made by big, not by the policy",
        "messages": [{"role": "user", "content": "caf\u00e9? \ud83d"}],
        "tools": [TOOL],
        "reply": {"role": "assistant", "content": "yes", "reasoning_content": "Hm."},
        "finish_reason": "stop",
        "score": -1,
        "hint": "Answer in full, please.",
        "judge": "rules",
        "votes": [
            {"question": "evaluative", "score": -1, "hint": None, "error": None},
            {"question": "directive", "score": 1, "hint": "Answer in full, please.", "error": None},
        ],
        "model": "big",
        "by_policy": False,
        "policy_version": None,
        "usage": USAGE,
        "created_at": 1.0,
        "finished_at": 2.0,
    }


def test_a_turn_of_the_policy_says_its_version_and_one_that_nobody_judged_no_score(data: Path) -> None:
    _, ours, side = exported(data)
    assert (ours["by_policy"], ours["policy_version"], ours["usage"]) == (True, 3, None)
    assert (side["next_state"], side["score"], side["judge"], side["votes"]) == (None, None, None, [])


@pytest.mark.parametrize(
    ("arguments", "turns"),
    [
        ((), ["turn_1", "turn_2", "turn_3"]),
        (("--kind", "main"), ["turn_1", "turn_2"]),
        (("--kind", "side"), ["turn_3"]),
        (("--judged",), ["turn_1", "turn_2"]),
        (("--min-score", "-1"), ["turn_1", "turn_2"]),
        (("--min-score", "1"), ["turn_2"]),
    ],
)
def test_turns_are_chosen_by_kind_judgement_and_score(
    data: Path, arguments: tuple[str, ...], turns: list[str]
) -> None:
    assert [line["turn_id"] for line in exported(data, *arguments)] == turns


def test_the_form_for_fine_tuning_has_the_turns_that_pleased(data: Path) -> None:
    reply = {"role": "assistant", "content": "yes"}
    assert exported(data, "--sft") == [{"messages": [*OURS.messages, reply]}]


def test_earlier_replies_are_marked_as_not_to_be_learned(data: Path) -> None:
    """They may have been disliked: only the last one is known to have pleased."""
    asked, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "no good"}
    store = Store.open(data / "store.sqlite")
    store.conversations.add_turn(
        replace(
            OURS, id="turn_9", finished_at=9.0, messages=(asked, reply, asked), state=TurnState.WAITING_JUDGE
        )
    )
    followed = store.conversations.add_next_state("turn_9", "conversation", [asked])
    store.learning.add_judgement(Judgement("judge_9", "turn_9", followed.id, "rules", 1, None, (), 9.0))
    store.close()
    line = exported(data, "--sft")[-1]
    assert line["messages"][:-1] == [asked, {**reply, "weight": 0}, asked]
    assert "weight" not in line["messages"][-1]


def test_a_file_is_its_owners_alone(data: Path, tmp_path: Path) -> None:
    assert exported(data, "--jsonl", str(tmp_path / "out.jsonl")) == []
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["turn_id"] for line in written.splitlines()] == ["turn_1", "turn_2", "turn_3"]
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("arguments", [("--kind", "both"), ("--min-score", "2"), ("--min-score", "good")])
def test_what_cannot_be_chosen_is_said_in_one_line(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setattr("sys.argv", ["openclaw-rl", "export", "--data-dir", str(data), *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert arguments[0] in line


def test_a_large_store_goes_by_in_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = Store.open(folder / "store.sqlite")
    store.conversations.open_session("sess_1", "caller_1")
    megabyte = ({"role": "user", "content": "x" * 1_000_000},)
    for number in range(60):
        store.conversations.add_turn(replace(TURN, id=f"turn_{number:03}", messages=megabyte))
    tracemalloc.start()
    try:
        seen = [exchange.turn.id for exchange in store.exchanges]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()
    assert seen == [f"turn_{number:03}" for number in range(60)], "also among turns that ended together"
    assert peak < 50_000_000


def test_a_store_from_before_recordings_gets_what_it_lacks(data: Path) -> None:
    connection = sqlite3.connect(data / "store.sqlite")
    connection.executescript("DROP TABLE recordings; DROP INDEX turns_by_time;")
    connection.close()
    assert [line["usage"] for line in exported(data)] == [None, None, None]
    connection = sqlite3.connect(data / "store.sqlite")
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM turns ORDER BY finished_at, id").fetchall()
    connection.close()
    assert "turns_by_time" in str(plan)
