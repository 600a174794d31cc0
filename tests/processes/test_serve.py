"""The server as a process: it answers, ends cleanly, and refuses to start in one line."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from openai import OpenAI
from running_processes import START_SECONDS, House, eventually


def test_it_streams_to_the_openai_client_and_ends_cleanly(house: House) -> None:
    server = house.start("serve")
    house.wait_until_ready()
    with OpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            max_tokens=30,
            stream=True,
        )
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    turn = house.store.conversations.turn(chunks[0].id.removeprefix("chatcmpl-"))
    assert turn is not None
    assert turn.reply["content"] == text
    assert 1 <= len(turn.response_ids) <= 30
    assert house.store.reports()["server"].phase == "serving"

    server.send_signal(signal.SIGTERM)
    assert server.wait(10) == 0
    assert house.store.reports()["server"].phase == "stopped"
    assert "Traceback" not in house.log_of(server)


def test_ctrl_c_ends_it_cleanly_too(house: House) -> None:
    server = house.start("serve")
    house.wait_until_ready()
    server.send_signal(signal.SIGINT)
    assert server.wait(10) == 0
    assert "Traceback" not in house.log_of(server)


def _assert_refused_in_one_line(house: House, *arguments: str, word: str) -> None:
    refused = house.run(*arguments)
    assert refused.returncode == 2, refused.stderr
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("openclaw-rl: ")
    assert word in line


def test_a_second_server_on_the_same_data_is_refused_in_one_line(house: House) -> None:
    house.start("serve")
    house.wait_until_ready()
    model = ("--model", str(house.model_folder))
    _assert_refused_in_one_line(
        house, "serve", *model, "--data-dir", str(house.data), "--port", "0", word="already runs"
    )
    assert house.http.get("/readyz").status_code == 200


def test_a_taken_port_is_said_in_one_line_before_the_model_is_loaded(house: House) -> None:
    with socket.create_server(("127.0.0.1", house.port)):
        _assert_refused_in_one_line(
            house, "serve", "--model", str(house.model_folder), "--port", str(house.port),
            "--data-dir", str(house.data), word=f"127.0.0.1:{house.port}",
        )  # fmt: skip


def test_of_two_servers_that_start_together_on_one_port_one_is_refused(house: House) -> None:
    servers = [house.start("serve", data=house.folder / name) for name in ("one", "two")]
    eventually(lambda: any(server.poll() is not None for server in servers), START_SECONDS)
    (refused,) = (server for server in servers if server.poll() is not None)
    assert refused.returncode == 2, house.log_of(refused)
    assert house.log_of(refused).startswith(f"openclaw-rl: cannot listen on 127.0.0.1:{house.port}")


def test_a_folder_that_is_no_model_is_said_in_one_line(house: House, tmp_path: Path) -> None:
    _assert_refused_in_one_line(
        house, "serve", "--model", str(tmp_path), "--data-dir", str(house.data), "--port", "0",
        word="config.json",
    )  # fmt: skip


def test_a_model_without_a_chat_template_is_said_in_one_line(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "no-template"
    folder.mkdir()
    for file in house.model_folder.iterdir():
        if file.name != "chat_template.jinja":
            (folder / file.name).symlink_to(file)
    _assert_refused_in_one_line(
        house, "serve", "--model", str(folder), "--data-dir", str(house.data), "--port", "0",
        word="chat template",
    )  # fmt: skip


def test_layers_that_the_model_does_not_have_are_said_in_one_line(house: House) -> None:
    _assert_refused_in_one_line(
        house, "serve", "--model", str(house.model_folder), "--data-dir", str(house.data), "--port", "0",
        "--set", "learn.lora_targets=nothing", word="learn.lora_targets",
    )  # fmt: skip
