"""The commands that only look: what they print, what they hide, and how they refuse."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl import cli, config
from openclaw_rl.config import ENVIRONMENT_PREFIX, ConfigError
from openclaw_rl.model import (
    Judgement,
    PolicyVersion,
    Sampling,
    Turn,
    TurnKind,
    TurnState,
    Update,
    VersionState,
    Vote,
)
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

LONG_REPLY = "a reply of many words :smile: [bold]as it is[/bold] " * 10
TURN = Turn(
    id="turn_1",
    session_id="s1",
    kind=TurnKind.MAIN,
    state=TurnState.WAITING_NEXT_STATE,
    model="tiny",
    policy_version=0,
    messages=({"role": "user", "content": "What is it?"},),
    reply={"role": "assistant", "content": LONG_REPLY},
    prompt_ids=(1, 2, 3),
    response_ids=(4, 5),
    logprobs=(-0.5, -1.5),
    sampling=Sampling(),
    finish_reason="stop",
    created_at=1.0,
    finished_at=2.0,
    conversation_hash="h1",
)


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (*os.environ,):
        if name.startswith(ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store in which one turn was judged and trained, and another never was."""
    folder = tmp_path / "data"
    store = Store.open(folder / "store.sqlite")
    store.conversations.open_session("s1", "")
    store.conversations.add_turn(TURN)
    store.conversations.add_turn(replace(TURN, id="turn_2", conversation_hash="h2"))
    next_state = store.conversations.add_next_state(
        "turn_1", "conversation", [{"role": "user", "content": "Shorter, please."}]
    )
    votes = (Vote("evaluative", -1, raw="rule: too long"), Vote("directive", 1, hint="Be shorter."))
    store.learning.add_judgement(
        Judgement("judge_1", "turn_1", next_state.id, "rules", -1, "Be shorter.", votes, time.time())
    )
    store.learning.record_update(
        Update(1, 1, "combined", ("turn_1",), {"loss": 0.25}, time.time(), time.time() + 1),
        PolicyVersion(1, 0, VersionState.CANDIDATE, str(folder / "000001"), "abc", 4.0, update_id=1),
    )
    store.learning.mark_serving(1)
    store.report("learner", "waiting", collected=0, needed=16)
    store.close()
    return folder


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str, status: int = 2
) -> str:
    """The one line on stderr with which the program ended, with this status."""
    monkeypatch.setattr("sys.argv", ["openclaw-rl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def shown(data: Path, kind: str, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(run("show", kind, name, "--data-dir", str(data)))
    return facts


def test_a_turn_is_shown_with_its_next_states_and_votes(data: Path) -> None:
    turn = shown(data, "turn", "chatcmpl-turn_1")
    assert turn["reply"] == TURN.reply  # long text is neither wrapped nor changed
    assert turn["state"] == "trained"
    assert turn["mean_logprob"] == -1.0
    assert turn["next_states"][0]["messages"][0]["content"] == "Shorter, please."
    assert turn["judgements"][0]["votes"][0]["raw"] == "rule: too long"


def test_the_newest_turns_are_listed_with_their_scores(data: Path) -> None:
    listed = run("show", "turns", "--data-dir", str(data))
    heading, *rows = [line.split() for line in listed.splitlines()]
    assert heading[:3] == ["turn", "score", "version"]
    assert ["turn_1", "-1", "0"] in [row[:3] for row in rows]


def test_a_sample_is_shown_with_what_the_learner_saw(data: Path) -> None:
    sample = shown(data, "sample", "turn_1")
    assert (sample["reward"], sample["hint"], sample["update"]) == (-1.0, "Be shorter.", 1)


def test_an_update_and_a_version_are_shown_down_to_their_samples(data: Path) -> None:
    update = shown(data, "update", "1")
    assert update["metrics"] == {"loss": 0.25}
    assert [sample["turn"] for sample in update["samples"]] == ["turn_1"]
    version = shown(data, "version", "1")
    assert (version["state"], version["ancestors"], version["made_by"]) == ("serving", "0", update)
    assert shown(data, "version", "0")["made_by"] is None


def test_status_says_what_waits_and_what_serves(data: Path) -> None:
    said = run("status", "--data-dir", str(data))
    assert "sessions: 1 open, 0 closed" in said
    assert "serving: version 1; parents: 0" in said
    assert "next update: 0 of 16 samples collected" in said
    assert "last update: 1 (combined)" in said
    rows = {" ".join(line.split()) for line in said.splitlines()}
    assert {"1 wait for a next state", "1 trained"} <= rows
    assert any(row.startswith("learner waiting: collected 0, needed 16") for row in rows)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("turn", "turn_9"),
        ("sample", "turn_2"),
        ("sample", "turn_9"),
        ("update", "7"),
        ("version", "7"),
        ("version", "one"),
        ("version", "²"),
        ("update", "9" * 30),
        ("thing", "1"),
    ],
)
def test_what_does_not_exist_is_said_in_one_line(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    line = refused(capsys, monkeypatch, "show", kind, name, "--data-dir", str(data))
    assert line.startswith("openclaw-rl: ")


def test_a_data_folder_on_which_nothing_ran_is_said_and_not_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(capsys, monkeypatch, "status", "--data-dir", str(tmp_path / "none"))
    assert "nothing has run" in line
    assert not (tmp_path / "none").exists()


def test_a_server_that_is_starting_is_said_with_a_status_that_says_ask_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_one(tmp_path, "supervisor"):
        for command in ("status", "export", "doctor"):
            line = refused(capsys, monkeypatch, command, "--data-dir", str(tmp_path), status=1)
            assert line.startswith(f"openclaw-rl: a server is starting on {tmp_path}")
    assert "nothing has run" in refused(capsys, monkeypatch, "status", "--data-dir", str(tmp_path))
    assert not (tmp_path / "store.sqlite").exists()


def test_a_file_that_is_no_store_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.sqlite").write_text("this is no database at all, but it is long enough" * 50)
    line = refused(capsys, monkeypatch, "status", "--data-dir", str(tmp_path))
    assert "the store cannot be used" in line


def test_what_may_pass_by_itself_is_said_with_a_status_that_up_tries_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.sqlite").mkdir()
    line = refused(capsys, monkeypatch, "status", "--data-dir", str(tmp_path), status=1)
    assert "the store cannot be used" in line
    (tmp_path / "file").touch()
    monkeypatch.setattr("os.nice", lambda _: 0)  # this process has other tests to run
    line = refused(capsys, monkeypatch, "learn", "--data-dir", str(tmp_path / "file"), status=1)
    assert "file" in line


def test_config_explains_every_setting_that_needs_it() -> None:
    told = run("config", "--explain")
    assert "Where to listen. Anything but loopback needs api_keys." in " ".join(told.split())
    unexplained = [name for name, meaning in config.meanings().items() if not meaning]
    assert set(unexplained) <= {
        "learn.lora_rank",
        "learn.lora_alpha",
        "learn.clip_low",
        "learn.clip_high",
        "learn.max_grad_norm",
        "learn.weight_decay",
        "learn.seed",
        "judge.temperature",
        "judge.max_tokens",
    }


def test_config_tells_where_each_value_came_from_and_masks_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text('[server]\napi_keys = ["sk-secret-1"]\nport = 9000\n')
    monkeypatch.setenv("OPENCLAW_RL_JUDGE_API_KEY", "sk-secret-2")
    said = run("config", "--config", "own.toml", "--set", "learn.batch_size=8")
    rows = {tuple(line.split()) for line in said.splitlines()}
    assert ("learn.batch_size", "8", "flag") in rows
    assert ("server.port", "9000", "file", "own.toml") in rows
    assert ("server.api_keys", "********", "file", "own.toml") in rows
    assert ("judge.api_key", "********", "environment", "OPENCLAW_RL_JUDGE_API_KEY") in rows
    assert ("learn.method", "hybrid", "default") in rows
    assert "secret" not in said


@pytest.mark.parametrize(
    "arguments",
    [("--set", "learn.batch_size"), ("--set", "learn.nothing=1"), ("--set", "learn.batch_size=no")],
)
def test_a_setting_that_cannot_be_used_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert arguments[1].split("=")[0] in refused(capsys, monkeypatch, "config", *arguments)


def test_a_command_that_needs_pytorch_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for command in ("up", "serve", "learn", "fetch", "demo"):
        with pytest.raises(ConfigError, match=r"pip install 'openclaw-rl\[local\]'"):
            CliRunner().invoke(cli.app, [command], catch_exceptions=False)


def test_the_version_and_the_help_are_printed() -> None:
    assert run("--version").strip()
    assert "Serve and learn" in run("--help")
