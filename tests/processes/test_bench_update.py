"""`openclaw-rl bench update` as a user runs it, on a tiny model and without the rival."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_whole_run_measures_every_part(model_folder: Path, tmp_path: Path) -> None:
    result, earlier = tmp_path / "results" / "update.json", tmp_path / "earlier.json"
    earlier.write_text('{"ratios": {"of_matmul_limit": 7.25}}', encoding="utf-8")
    arguments = ["bench", "update", "--no-rival", "--rounds", "1", "--samples", "3", "--tokens", "8"]
    arguments += ["--model", str(model_folder), "--set", "learn.threads=1"]
    arguments += ["--json", str(result), "--compare", str(earlier)]
    command = [sys.executable, "-m", "openclaw_rl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=tmp_path)
    assert "times the matrix products alone (was 7.25)" in done.stdout
    written = json.loads(result.read_text(encoding="utf-8"))
    assert written["ratios"]["of_matmul_limit"] > 0
    assert written["work"] == {"samples": 3, "tokens": 8, "dtype": written["work"]["dtype"], "threads": 1}
    assert written["contenders"]["binary"]["parts"].keys() == {"forward", "backward", "optimiser"}
    assert written["contenders"]["hybrid"]["parts"].keys() == {"forward", "backward", "optimiser", "teacher"}
