"""Record-only mode as a user starts it: real processes, no PyTorch, our own gateway as the other server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from running_gateway import RunningGateway, running_gateway

from openclaw_rl.config import ENVIRONMENT_PREFIX
from openclaw_rl.model import TurnState
from openclaw_rl.store import Store

KEY = "sk-secret-of-the-caller"
NO_TORCH = 'raise ImportError("there is no PyTorch in the base install")\n'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """In which importing what the base install has not fails."""
    for name in ("torch", "transformers", "safetensors", "numpy"):
        package = tmp_path / "hidden" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(NO_TORCH)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    path = os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "COLUMNS": "200"}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[RunningGateway]:
    """The other server: a gateway of ours with a model that says what it is told to."""
    with running_gateway(tmp_path / "other") as running:
        yield running


def eventually(look: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "openclaw_rl", *arguments],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_up_records_judges_and_exports_without_pytorch(
    environment: dict[str, str], model: RunningGateway, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    log = (tmp_path / "up.log").open("w")
    command = ["up", "--upstream", model.url, "--data-dir", str(data), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl", *command], env=environment, cwd=tmp_path, stdout=log, stderr=log
    )
    try:

        def serving() -> bool:
            assert process.poll() is None, (tmp_path / "up.log").read_text()
            return data.exists() and "server" in reports(data) and "judge" in reports(data)

        eventually(serving)
        url = reports(data)["server"]
        model.engine.say("Paris is the capital of France.", "Sorry.")
        with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            messages = [{"role": "user", "content": "What is the capital of France?"}]
            chunks = client.chat.completions.create(model="tiny", messages=messages, stream=True)
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert text == "Paris is the capital of France."
            complaint = {"role": "user", "content": "No, that is wrong. Please answer in one word."}
            messages += [{"role": "assistant", "content": text}, complaint]
            client.chat.completions.create(model="tiny", messages=messages)
        store = Store.open(data / "store.sqlite")
        eventually(lambda: store.conversations.turns(state=TurnState.RECORDED))
        store.close()

        found = run(environment, tmp_path, "doctor", "--url", url, "--api-key", KEY)
        assert found.returncode == 0, found.stdout
        lines = dict(line.split(maxsplit=1)[1].split(": ", 1) for line in found.stdout.splitlines())
        assert lines["ready"] == f"records what {model.url}/v1 answers; nothing trains"
        assert lines["recording"] == "doctor's own 3 turns are in the store, as side"
        assert lines["learner"] == "none, since the upstream's model is not ours to train"

        told = run(environment, tmp_path, "status", "--data-dir", str(data)).stdout
        assert f"recording what {model.url}/v1 answers; nothing trains" in told
        assert "recorded: made by tiny, not by the policy" in told
        assert "next update" not in told

        lines_out = run(environment, tmp_path, "export", "--judged", "--data-dir", str(data)).stdout
        (turn,) = map(json.loads, lines_out.splitlines())
        assert (turn["model"], turn["score"], turn["judge"]) == ("tiny", -1, "rules")
        assert turn["reply"]["content"] == text
        assert turn["next_state"]["messages"] == [complaint]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()
    assert process.returncode == 0
    said = (tmp_path / "up.log").read_text()
    assert "Traceback" not in said
    assert KEY not in said
    for path in data.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def reports(data: Path) -> dict[str, str]:
    """The processes that work, each with where it listens."""
    store = Store.open(data / "store.sqlite")
    try:
        working = {name: report for name, report in store.reports().items() if report.phase != "stopped"}
        return {name: str(report.detail.get("url", "")) for name, report in working.items()}
    finally:
        store.close()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("up", "--upstream", "api.example.com"), "upstream.url"),
        (("serve", "--upstream", "http://127.0.0.1:8780"), "is this server itself"),
        (("up", "--upstream", "http://127.0.0.1:9", "--judge", "self"), "judge.kind"),
        (("learn", "--upstream", "http://127.0.0.1:9", "--judge", "self"), "judge.kind"),
        (("serve", "--upstream", "http://127.0.0.1:9", "--host", "0.0.0.0"), "server.api_keys"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    environment: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    refused = run(environment, tmp_path, *arguments, "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2, refused.stderr
    (line,) = refused.stderr.splitlines()
    assert line.startswith("openclaw-rl: ")
    assert word in line


def test_where_nothing_trains_the_judge_runs_alone_without_pytorch(
    environment: dict[str, str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    command = ["learn", "--set", "learn.enabled=false", "--data-dir", str(data)]
    process = subprocess.Popen([sys.executable, "-m", "openclaw_rl", *command], env=environment, cwd=tmp_path)
    try:
        eventually(lambda: data.exists() and "judge" in reports(data))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert reports(data) == {}
    finally:
        process.kill()
        process.wait()


def test_a_running_reply_is_recorded_as_cut_off_when_the_server_is_stopped(
    environment: dict[str, str], model: RunningGateway, tmp_path: Path
) -> None:
    from openclaw_rl.evals.scripted_engine import Script

    data = tmp_path / "data"
    command = ["serve", "--upstream", model.url, "--data-dir", str(data), "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "openclaw_rl", *command], env=environment, cwd=tmp_path)
    try:
        eventually(lambda: data.exists() and "server" in reports(data))
        model.engine.say(Script("a long story " * 100, delay=0.2))
        url = reports(data)["server"]
        with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            messages = [{"role": "user", "content": "Tell me a story."}]
            chunks = client.chat.completions.create(model="tiny", messages=messages, stream=True)
            next(iter(chunks))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    store = Store.open(data / "store.sqlite")
    (turn,) = store.conversations.turns()
    store.close()
    assert (turn.state, turn.state_reason) == (TurnState.ABORTED, "the server stopped")
    assert model.engine.cancels == 1
