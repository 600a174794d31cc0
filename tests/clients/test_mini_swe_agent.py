"""mini-swe-agent, a coding agent that speaks plain Chat Completions: in tool calls, and in commands as text.

It brings litellm and much else, so it lives in an environment of its own, which the first run makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exchanges import assert_one_session, conversation_about, next_state_of, wait_until_judged
from running_processes import House

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / ".clients" / "mini-swe-agent-2.4.6"
WITHOUT_DEPENDENCIES = ("mini-swe-agent==2.4.6",)
"""Its data sets and terminal pages are not needed here: a third of its size, and PyArrow and pandas."""
NEEDED = ("litellm==1.110.2", "jinja2", "platformdirs", "pydantic", "python-dotenv", "pyyaml")
NEEDED += ("requests", "rich", "tenacity", "typer")


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """Of the environment with mini-swe-agent in it, made if it is not there yet."""
    python, whole = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "whole"
    if not whole.exists():
        run(sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT))
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
        run(*pip, "--no-deps", *WITHOUT_DEPENDENCIES)
        run(*pip, *NEEDED)
        whole.touch()
    return python


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("form", ["calls", "text"])
def test_it_runs_a_command_sees_what_came_of_it_and_submits(
    house: House, interpreter: Path, tmp_path: Path, form: str
) -> None:
    task = f"Which files are there? ({form})"
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "the-notes.txt").touch()
    trajectory = tmp_path / "trajectory.json"
    given = (f"{house.url}/v1", form, task, str(folder), str(trajectory))
    done = subprocess.run(
        [str(interpreter), str(HERE / "drive_mini_swe_agent.py"), *given],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path),
            "MSWEA_SILENT_STARTUP": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kept = json.loads(trajectory.read_text())
    assert kept["info"]["exit_status"] == "Submitted"
    outputs = [message.get("extra", {}).get("raw_output") for message in kept["messages"]]
    assert list(filter(None, outputs)) == ["the-notes.txt\n"], "it ran the command"

    turns = conversation_about(house, task)
    assert len(turns) == 2
    assert_one_session(turns)
    listing, submitting = turns
    if form == "calls":
        (call,) = listing.reply["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    else:
        assert listing.reply["content"].endswith("```mswea_bash_command\nls\n```")
    (result,) = next_state_of(house, listing).messages
    assert result["role"] == ("tool" if form == "calls" else "user")
    assert "the-notes.txt" in result["content"]
    assert submitting.finish_reason in ("stop", "tool_calls")
    wait_until_judged(house, listing)
