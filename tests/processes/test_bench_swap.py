"""`openclaw-rl bench swap` as a user runs it, shortened: versions go live under traffic, none is mixed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from running_processes import environment


def test_no_reply_is_of_two_versions(roomy_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "swap.json"
    command = [sys.executable, "-m", "openclaw_rl", "bench", "swap", "--model", str(roomy_model)]
    command += ["--chats", "40", "--swaps", "4", "--clients", "4", "--tokens", "16"]
    command += ["--set", "engine.threads=1", "--json", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {tuple(line.split()[:2]) for line in done.stdout.splitlines() if line.strip()}
    assert {("errors", "0"), ("mixed_versions", "0"), ("indistinguishable", "0")} <= shown
    assert {"across_a_swap", "largest_difference", "nearest_other_version", "longest_gap_s"} <= {
        name for name, *_ in shown
    }
    assert "wrong" not in done.stdout
    for number in range(1, 5):
        assert f"talking: version {number} goes live" in done.stdout, (
            "no terminal, and still it says how far it is"
        )
    said = json.loads(file.read_text(encoding="utf-8"))
    assert said["chats"] >= 40
    assert said["replies"] == 2 * said["chats"]
    assert (said["swaps"], said["errors"], said["mixed_versions"], said["indistinguishable"]) == (4, 0, 0, 0)
    assert said["under_other_versions"] >= 20
    assert said["largest_difference"] < said["tolerance"] < said["nearest_other_version"]
    assert 0 < said["longest_gap_s"] < 60
