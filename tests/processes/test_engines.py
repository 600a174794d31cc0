"""Other engines than the embedded one as a user has them: flags, a server that is started, and its end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import torch
from conversations import converse, stream, user
from running_processes import START_SECONDS, House, eventually, is_alive
from test_recorded_log_probs import _largest_difference
from tiny_server import Listening
from vllm_stand_in import TinyVllm, vllm_app

from openclaw_rl.model import TurnState, VersionState

COMMAND = Path(__file__).parents[1] / "engines" / "vllm_command.py"


@pytest.fixture
def vllm(house: House) -> Iterator[tuple[TinyVllm, str]]:
    """A server that somebody else runs, and its URL."""
    state = TinyVllm(house.model_folder, most_rank=16)
    listening = Listening(vllm_app(state, "sesame"))
    yield state, listening.url
    listening.stop()


def test_versions_that_the_learner_makes_are_served_by_vllm_and_recorded_exactly(
    house: House, vllm: tuple[TinyVllm, str]
) -> None:
    state, url = vllm
    engine = ("engine.kind=vllm", f"engine.url={url}/v1", "engine.api_key=sesame")
    up = house.start(
        "up", *engine, "learn.batch_size=2", "learn.learning_rate=0.05", "sampling.temperature=1"
    )
    house.wait_until_ready()
    first = stream(house.http, [user("What is the capital of France?")])
    assert first.finished, house.log_of(up)
    turn = house.store.conversations.turn(first.turn_id)
    assert turn is not None
    assert (turn.policy_version, first.version) == (0, "0")
    assert _largest_difference(turn, house.model_folder, torch.float32) < 1e-3
    for number in range(2):
        assert all(seen.finished for seen in converse(house.http, number)), house.log_of(up)

    def new_version() -> bool:
        return house.store.learning.newest_good_version().state is VersionState.SERVING and any(
            version.number for version in house.store.learning.versions()
        )

    eventually(new_version, START_SECONDS)
    later = stream(house.http, [user("What is the capital of Spain?")])
    assert later.version == "1"
    assert state.asked_by[-1] is not None
    assert state.asked_by[-1].endswith("-v1")
    # What vLLM cannot tell the log-probs of is served, judged and never trained on.
    restricted = [user("What is the capital of Italy?")]
    reply = stream(house.http, restricted, top_p=0.5)
    answered = [*restricted, {"role": "assistant", "content": reply.text}, user("No, that is wrong.")]
    assert stream(house.http, answered).finished

    def set_aside() -> str:
        found = house.store.conversations.turn(reply.turn_id)
        assert found is not None
        return found.state_reason if found.state is TurnState.SET_ASIDE else ""

    assert "top-p" in eventually(set_aside, 30)
    status, lines = _doctor(house, url)
    assert status == 0, lines
    assert f"vLLM at {url} answers, context of 512 tokens" in lines
    up.send_signal(signal.SIGTERM)
    assert up.wait(60) == 0
    assert not state.adapters, "what we loaded there is unloaded"


def _doctor(house: House, url: str) -> tuple[int, str]:
    engine = ("--set", "engine.kind=vllm", "--set", f"engine.url={url}", "--set", "engine.api_key=sesame")
    done = house.run("doctor", "--url", house.url, *engine)
    return done.returncode, done.stdout


def _of_ours(house: House, children: Path) -> str:
    words = f"{sys.executable} {COMMAND} --children {children}"
    house.start("serve", "engine.kind=vllm", f"engine.command={words}")
    house.wait_until_ready()
    return children.read_text(encoding="ascii")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_vllm_of_ours_is_started_and_ended_with_everything_it_started(
    house: House, tmp_path: Path, number: signal.Signals
) -> None:
    pids = [int(pid) for pid in _of_ours(house, tmp_path / "children").split()]
    assert stream(house.http, [user("Hello?")]).finished
    assert all(map(is_alive, pids))
    house._processes[-1].send_signal(number)
    house._processes[-1].wait(60)
    eventually(lambda: not any(map(is_alive, pids)), 30)


def test_the_server_ends_when_its_vllm_cannot_go_on(house: House, tmp_path: Path) -> None:
    leader, child = map(int, _of_ours(house, tmp_path / "children").split())
    os.kill(leader, signal.SIGKILL)
    house._processes[-1].wait(60)
    eventually(lambda: not is_alive(child), 30)


def test_the_key_of_a_vllm_of_ours_is_nobody_elses(house: House, tmp_path: Path) -> None:
    _of_ours(house, tmp_path / "children")
    leader = (tmp_path / "children").read_text(encoding="ascii").split()[0]
    words = Path(f"/proc/{leader}/cmdline").read_bytes().decode().split("\0")
    url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    assert httpx2.get(f"{url}/v1/models").status_code == 401


REFUSALS = {
    "no SGLang": (["--engine", "sglang"], "--engine-url"),
    "no vLLM": (["--engine", "vllm"], "engine.command"),
    "no such command": (["--engine", "vllm", "--set", "engine.command=no-such-vllm"], "no-such-vllm"),
    "no kind": (["--engine-url", "http://127.0.0.1:9"], "--engine"),
    "another kind": (["--engine", "tgi"], "engine.kind"),
    "no URL": (["--engine", "vllm", "--engine-url", "localhost:8000"], "base URL"),
    "nobody there": (
        ["--engine", "vllm", "--engine-url", "http://127.0.0.1:9", "--set", "engine.wait_seconds=0"],
        "cannot be reached",
    ),
    "whole models": (
        ["--engine", "vllm", "--engine-url", "http://127.0.0.1:9", "--set", "learn.full_fine_tuning=true"],
        "learn.full_fine_tuning",
    ),
}


@pytest.mark.parametrize(("flags", "word"), REFUSALS.values(), ids=REFUSALS)
def test_an_engine_that_cannot_be_is_said_in_one_line(house: House, flags: list[str], word: str) -> None:
    model = ("--model", str(house.model_folder), "--data-dir", str(house.data), "--port", "0")
    refused = house.run("serve", *model, *flags)
    assert refused.returncode == 2, refused.stderr
    line = refused.stderr.splitlines()[-1]
    assert line.startswith("openclaw-rl: ")
    assert word in line
    assert "Traceback" not in refused.stderr
