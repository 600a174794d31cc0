"""Server and learner together: one dies and the other goes on; both end with their parent."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from running_processes import START_SECONDS, House, eventually, is_alive

from openclaw_rl.processes.up import LONGEST_BACKOFF_SECONDS, Child, ChildRefusedError


def test_serving_goes_on_while_a_killed_learner_is_started_again(house: House) -> None:
    supervisor = house.start("up")
    house.wait_until_ready()
    learner = house.wait_for_learner()
    server = house.store.reports()["server"].pid
    os.kill(learner, signal.SIGKILL)
    statuses = []

    def restarted() -> bool:
        statuses.append(_ask(house))
        return house.store.reports()["learner"].pid != learner

    eventually(restarted, START_SECONDS)
    assert set(statuses) == {200}
    another = house.wait_for_learner(pid_before=learner)
    assert house.store.reports()["server"].pid == server

    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(20) == 0
    assert not is_alive(server)
    assert not is_alive(another)
    assert {report.phase for report in house.store.reports().values()} == {"stopped"}


def test_when_up_is_killed_both_its_processes_end_and_another_can_start(house: House) -> None:
    supervisor = house.start("up")
    house.wait_until_ready()
    learner = house.wait_for_learner()
    server = house.store.reports()["server"].pid
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: not is_alive(server) and not is_alive(learner), 20)
    house.start("up")
    house.wait_until_ready()
    assert _ask(house) == 200


def _ask(house: House) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 5}
    return int(house.http.post("/v1/chat/completions", json=body).status_code)


def test_a_second_up_on_the_same_data_is_refused_in_one_line(house: House) -> None:
    house.start("up")
    eventually(lambda: (house.data / "supervisor.lock").exists(), START_SECONDS)
    time.sleep(0.1)
    model = ("--model", str(house.model_folder))
    refused = house.run("up", "--data-dir", str(house.data), *model)
    assert refused.returncode == 2
    assert refused.stderr.startswith("openclaw-rl: another supervisor already runs")


def test_up_ends_in_one_line_when_its_port_is_taken(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        model = ("--model", str(house.model_folder))
        refused = house.run("up", "--data-dir", str(house.data), "--port", port, *model)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"openclaw-rl: cannot listen on 127.0.0.1:{port}")
    assert refused.stderr.count("\n") == 1


def test_on_a_free_port_up_says_that_the_address_follows_and_then_names_it(house: House) -> None:
    supervisor = house.start("up", port=0)

    def url() -> str:
        assert supervisor.poll() is None, house.log_of(supervisor)
        report = house.store.reports().get("server") if (house.data / "store.sqlite").exists() else None
        return report.detail["url"] if report is not None and report.phase == "serving" else ""

    served_at = eventually(url, START_SECONDS)
    first, *lines = house.log_of(supervisor).splitlines()
    assert first == (
        "starting; once it serves, tiny answers on a free port (any API key); "
        "the server's line below names it as soon as it serves"
    )
    assert any(line.endswith(f"serving tiny on {served_at}/v1") for line in lines)


def test_a_child_that_keeps_failing_is_tried_ever_more_rarely_but_always_again() -> None:
    said: list[str] = []
    child = Child("server", ["--version"])
    for _ in range(3):
        child.start_at = time.monotonic()
        child.tend(said.append)
        assert child.process is not None
        child.process.wait()
        child.tend(said.append)
    assert [line.rsplit(" in ", 1)[1] for line in said] == ["1 s", "2 s", "4 s"]
    assert child.start_at > time.monotonic()
    child.tend(said.append)
    assert child.process is None  # not before its time

    child.failures = 5000
    child.start_at = time.monotonic()
    child.tend(said.append)
    assert child.process is not None
    child.process.wait()
    child.tend(said.append)
    assert child.start_at - time.monotonic() <= LONGEST_BACKOFF_SECONDS


def test_what_a_child_says_can_go_to_a_file_which_a_refusal_then_names(tmp_path: Path) -> None:
    said = tmp_path / "processes.log"
    child = Child("server", ["serve", "--set", "server.port=many"], said)
    child.start()
    assert child.process is not None
    child.process.wait(START_SECONDS)
    with pytest.raises(ChildRefusedError, match=r"processes\.log"):
        child.tend(lambda _: None)
    assert "server.port" in said.read_text(encoding="utf-8")
