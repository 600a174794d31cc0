"""Other engines than the embedded one as a user has them: flags, a server that is started, and its end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from conversations import converse, stream, user
from recorded_log_probs import differences
from running_processes import START_SECONDS, House, eventually, is_alive
from tiny_server import Listening
from vllm_stand_in import TinyVllm, vllm_app

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.model import TurnState, VersionState
from openclaw_rl.processes.engines import check
from openclaw_rl.processes.local_vllm import flags

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
    assert differences(turn, house.model_folder, torch.float32).max() < 1e-3
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
    assert up.wait(START_SECONDS) == 0
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


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_vllm_of_ours_is_started_and_ended_with_everything_it_started(
    house: House, tmp_path: Path, number: signal.Signals
) -> None:
    pids = [int(pid) for pid in _of_ours(house, tmp_path / "children").split()]
    assert stream(house.http, [user("Hello?")]).finished
    assert all(map(is_alive, pids))
    words = Path(f"/proc/{pids[0]}/cmdline").read_bytes().decode().split("\0")
    url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    assert httpx2.get(f"{url}/v1/models").status_code == 401, "its key is known to its server alone"
    house._processes[-1].send_signal(number)
    house._processes[-1].wait(60)
    eventually(lambda: not any(map(is_alive, pids)), 30)


def test_the_server_ends_when_its_vllm_cannot_go_on(house: House, tmp_path: Path) -> None:
    leader, child = map(int, _of_ours(house, tmp_path / "children").split())
    os.kill(leader, signal.SIGKILL)
    house._processes[-1].wait(60)
    eventually(lambda: not is_alive(child), 30)


SERVER = {"kind": "vllm", "url": "http://127.0.0.1:9"}
REFUSALS = {
    "no SGLang": ({"kind": "sglang"}, {}, "--engine-url"),
    "no vLLM": ({"kind": "vllm"}, {}, r"engine\.command"),
    "no such command": ({"kind": "vllm", "command": "no-such-vllm --x"}, {}, "no-such-vllm"),
    "no kind": ({"url": "http://127.0.0.1:9"}, {}, "--engine"),
    "no URL": ({"kind": "vllm", "url": "localhost:8000"}, {}, "base URL"),
    "a port of letters": ({"kind": "vllm", "url": "http://127.0.0.1:abc"}, {}, "base URL"),
    "a port too high": ({"kind": "sglang", "url": "http://127.0.0.1:99999"}, {}, "base URL"),
    "port 0": ({"kind": "vllm", "url": "http://127.0.0.1:0"}, {}, "base URL"),
    "half an address": ({"kind": "vllm", "url": "http://[::1"}, {}, "base URL"),
    "a space in the host": ({"kind": "vllm", "url": "http://exa mple:80"}, {}, "base URL"),
    "whole models": (SERVER, {"full_fine_tuning": True}, r"learn\.full_fine_tuning"),
}


@pytest.mark.parametrize(("engine", "learn", "word"), REFUSALS.values(), ids=REFUSALS)
def test_engine_settings_that_cannot_work_are_told(
    engine: dict[str, Any], learn: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        check(Settings(engine=engine, learn=learn))


def test_good_engine_settings_pass() -> None:
    check(Settings())
    check(Settings(engine=SERVER))
    check(Settings(engine={**SERVER, "url": "https://[::1]:8000/v1"}))
    check(Settings(engine={**SERVER, "kind": "sglang"}))
    check(Settings(engine={"kind": "vllm", "command": f"{sys.executable} -m some.vllm"}))


def test_a_server_that_is_not_there_is_said_in_one_line(house: House) -> None:
    model = ("--model", str(house.model_folder), "--data-dir", str(house.data), "--port", "0")
    engine = ("--engine", "vllm", "--engine-url", "http://127.0.0.1:9", "--set", "engine.wait_seconds=0")
    refused = house.run("serve", *model, *engine)
    assert refused.returncode == 2, refused.stderr
    line = refused.stderr.splitlines()[-1]
    assert line.startswith("openclaw-rl: vLLM at http://127.0.0.1:9 cannot be reached")
    assert "--engine-url" in line
    assert "Traceback" not in refused.stderr


def test_a_vllm_of_ours_gets_the_flags_that_the_engine_needs(model_folder: Path) -> None:
    settings = Settings(model={"device": "cpu", "dtype": "float32"}, learn={"lora_rank": 9})
    found = {flag[0]: flag[1:] for flag in flags(settings, model_folder)}
    assert found["--max-lora-rank"] == ("16",)
    assert found["--dtype"] == ("float32",)
    assert found["--logprobs-mode"] == ("processed_logprobs",)
    assert "lm_head" not in found["--lora-target-modules"]
    with pytest.raises(ConfigError, match="512"):
        flags(Settings(learn={"lora_rank": 513}), model_folder)
