"""The command that tries a running server: what it finds when all is well, and what when it is not."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from running_processes import House

from openclaw_rl.model import TurnKind


def findings(house: House, *arguments: str, by: str = "--url") -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and of each check its state and what was found."""
    where = f"{house.url}/v1" if by == "--url" else str(house.data)
    done = house.run("doctor", by, where, *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        state, rest = line.split(maxsplit=1)
        name, words = rest.split(": ", 1)
        found[name] = (state, words)
    return done.returncode, found


def test_it_finds_a_healthy_server_and_says_what_the_next_update_needs(roomy_house: House) -> None:
    roomy_house.start("up", "learn.batch_size=4")
    roomy_house.wait_until_ready()
    roomy_house.wait_for_learner()
    status, found = findings(roomy_house)
    assert status == 0, found
    assert list(found) == [
        "server",
        "ready",
        "model",
        "plain request",
        "streamed request",
        "tool request",
        "recording",
        "judge",
        "learner",
        "next update",
    ]
    assert {state for state, _ in found.values()} <= {"ok", "warning"}
    assert found["model"][1] == "roomy, context of 2048 tokens"
    assert found["tool request"][0] == "warning", "a model of random weights calls no tool"
    assert found["recording"] == ("ok", "doctor's own 3 turns are in the store, as side")
    assert "0 of 4 samples, 4 more needed" in found["next update"][1]
    turns = roomy_house.store.conversations.turns()
    assert {turn.kind for turn in turns} == {TurnKind.SIDE}, "its requests never train"


def test_it_asks_for_the_key_that_is_missing_and_says_that_no_judge_and_no_learner_run(
    roomy_house: House,
) -> None:
    roomy_house.start("serve", "server.api_keys=right")
    roomy_house.wait_until_ready()
    status, found = findings(roomy_house)
    assert status == 1
    assert list(found) == ["server", "ready", "model"]
    state, words = found["model"]
    assert state == "failed"
    assert words.startswith("HTTP 401: ")
    assert "--api-key" in words
    status, found = findings(roomy_house, "--api-key", "right", by="--data-dir")
    assert status == 1
    assert found["server"] == ("ok", f"{roomy_house.url} answers")
    assert found["plain request"][0] == "ok"
    for name in ("judge", "learner"):
        state, words = found[name]
        assert state == "failed"
        assert "has never run on this store; run `openclaw-rl up`" in words


def test_it_says_how_to_start_a_server_that_is_not_there(house: House) -> None:
    status, found = findings(house)
    assert status == 1
    (name,) = found
    assert found[name] == (
        "failed",
        f"{house.url} cannot be reached (ConnectError); start `openclaw-rl up`, or give the right --url or "
        "--data-dir",
    )


def test_a_folder_on_which_no_server_runs_is_refused_instead_of_asking_another_server(house: House) -> None:
    refused = house.run("doctor", "--data-dir", str(house.data))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"openclaw-rl: no server runs on {house.data}; start `openclaw-rl up`")
    assert not house.data.exists()


class OtherServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")


def test_it_is_not_misled_by_a_server_of_another_kind(house: House) -> None:
    with HTTPServer(("127.0.0.1", house.port), OtherServer) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        status, found = findings(house)
        other.shutdown()
        thread.join()
    assert status == 1
    assert found == {"server": ("failed", "the answer has a form that it should not have; is it our server?")}
