"""The commands that say how a client is connected: what they print for which server, and how they refuse."""

from __future__ import annotations

import json
import threading
from http.server import HTTPServer
from typing import Any

import httpx2
import pytest
from running_processes import House
from test_doctor import OtherServer

from openclaw_rl.connect import openclaw
from openclaw_rl.connect.served import Served


def connect(house: House, *arguments: str, **environment: str) -> tuple[str, list[str]]:
    """What goes to stdout, and the lines of stderr."""
    done = house.run("connect", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()


def only_model(patch: dict[str, Any]) -> dict[str, Any]:
    (model,) = patch["models"]["providers"]["openclaw-rl"]["models"]
    return dict(model)


def test_a_running_server_is_asked_for_its_model_and_window(house: House) -> None:
    house.start("serve", "model.served_name=mine", "server.api_keys=secret")
    house.wait_until_ready()
    url = ("--url", f"{house.url}/v1", "--api-key", "secret")
    printed, remarks = connect(house, "openclaw", *url)
    patch = json.loads(printed)
    provider = patch["models"]["providers"]["openclaw-rl"]
    assert provider["baseUrl"] == f"{house.url}/v1"
    assert provider["apiKey"] == "YOUR-KEY"
    assert only_model(patch)["contextWindow"] == 512
    assert patch["agents"]["defaults"]["model"]["primary"] == "openclaw-rl/mine"
    assert any("the server says" in line for line in remarks)
    assert all(line.startswith("# ") for line in remarks)
    assert "secret" not in printed + "".join(remarks)

    printed, remarks = connect(house, "openai", *url)
    assert printed.splitlines() == [
        f"export OPENAI_BASE_URL={house.url}/v1",
        "export OPENAI_API_KEY=YOUR-KEY",
    ]
    assert "mine" in remarks[0]
    assert httpx2.get(f"{house.url}/v1/models").status_code == 401

    folder = ("--data-dir", str(house.data), "--set", "server.api_keys=secret")
    assert connect(house, "openai", *folder)[0] == printed, "the folder's server is found without its port"
    refused = house.run("connect", "openai", *folder, "--url", "http://127.0.0.1:9")
    assert refused.stderr.startswith("openclaw-rl: http://127.0.0.1:9 cannot be reached"), "--url wins"

    refused = house.run("connect", "openclaw", "--url", house.url)
    assert refused.returncode == 2
    assert (
        refused.stderr
        == f"openclaw-rl: {house.url} wants a key: give one with --api-key, or set server.api_keys\n"
    )


def test_without_a_server_the_settings_say_it_and_that_is_said(house: House) -> None:
    at = ("--port", str(house.port))
    printed, remarks = connect(house, "openclaw", *at)
    assert only_model(json.loads(printed))["contextWindow"] == 8192
    assert any("the settings say, for no server answers there yet" in line for line in remarks)
    assert list(house.folder.iterdir()) == [], "it writes nothing"

    other = ("--set", "model.name=Qwen/Qwen3-0.6B")
    refused = house.run("connect", "openclaw", *at, *other)
    assert refused.returncode == 2
    assert "the context window of Qwen/Qwen3-0.6B is not known yet" in refused.stderr
    printed, _ = connect(house, "openclaw", *at, *other, "--set", "engine.context_length=32768")
    assert only_model(json.loads(printed)) | {"contextWindow": 32768, "id": "Qwen3-0.6B"} == only_model(
        json.loads(printed)
    )
    refused = house.run("connect", "openclaw", "--data-dir", str(house.data))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"openclaw-rl: no server runs on {house.data}")
    refused = house.run("connect", "openclaw", "--url", house.url)
    assert refused.returncode == 2
    assert (
        refused.stderr
        == f"openclaw-rl: {house.url} cannot be reached: start the server, or give the right --url\n"
    )


def test_in_front_of_an_upstream_a_client_keeps_its_own_configuration(house: House) -> None:
    house.start("serve", "upstream.url=http://127.0.0.1:9/v1")
    house.wait_until_ready()
    refused = house.run("connect", "openclaw", "--url", house.url)
    assert refused.returncode == 2
    assert "http://127.0.0.1:9/v1" in refused.stderr
    assert f"change the address in it to {house.url}/v1" in refused.stderr


def test_a_server_of_another_kind_is_refused_in_one_line(house: House) -> None:
    with HTTPServer(("127.0.0.1", house.port), OtherServer) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        refused = house.run("connect", "openclaw", "--url", house.url)
        other.shutdown()
        thread.join()
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"openclaw-rl: what answers at {house.url} is no OpenClaw-RL server")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("context", "lean", "reply"), [(8192, True, 1024), (16384, False, 2048), (131072, False, 4096)]
)
def test_a_small_window_gets_a_small_prompt_and_every_reply_room(
    context: int, lean: bool, reply: int
) -> None:
    served = Served("http://127.0.0.1:8780/v1", "mine", context, needs_key=False, answered=True)
    patch = openclaw.patch(served)
    assert ("tools" in patch, "skills" in patch) == (lean, lean)
    assert ("skipBootstrap" in patch["agents"]["defaults"]) == lean
    assert only_model(patch)["maxTokens"] == reply
    # All that is put in can be taken out: a provider as a whole, and the model that answers set back.
    taken_out = openclaw.undo(patch)
    assert _paths(taken_out) == _paths(patch)
    assert taken_out["models"] == {"providers": {"openclaw-rl": None}}
    assert taken_out["agents"]["defaults"]["model"] == {"primary": openclaw.FORMER_MODEL}
    assert any(json.dumps(taken_out) in line for line in openclaw.remarks(served))


def _paths(patch: dict[str, Any], path: str = "") -> set[str]:
    """What a patch sets, down to its providers."""
    return {
        deeper
        for name, value in patch.items()
        for deeper in (
            _paths(value, f"{path}/{name}")
            if isinstance(value, dict) and path != "/models/providers"
            else {f"{path}/{name}"}
        )
    }


def test_the_plugin_that_comes_with_us_is_for_the_provider_that_is_printed() -> None:
    folder = openclaw.plugin_folder()
    assert folder is not None
    manifest = json.loads((folder / "openclaw.plugin.json").read_text(encoding="utf-8"))
    assert manifest["providers"] == [openclaw.PROVIDER]
    assert any(str(folder) in line for line in openclaw.plugin_remarks())
