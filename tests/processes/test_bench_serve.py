"""`openclaw-rl bench serve` as a user runs it, on a tiny model and with small numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running_processes import environment
from tiny_model import llama, make_tiny_model

SMALL = ["--streams", "1", "--streams", "2", "--tokens", "8", "--rounds", "1", "--long", "400"]
SMALL += ["--updates", "1", "--sessions", "40"]
ONE_THREAD = ["--set", "engine.threads=1", "--set", "learn.threads=1", "--set", "learn.batch_size=4"]


def bench(folder: Path, model: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openclaw_rl", "bench", "serve", "--model", str(model), *SMALL]
    command += [*ONE_THREAD, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment())


def rate(result: dict[str, Any], part: str, contender: str, streams: int) -> float:
    numbers = result["parts"][part]["contenders"][contender][str(streams)]
    assert numbers["tokens_per_second"] > 0
    return float(numbers["tokens_per_second"])


@pytest.mark.slow
def test_the_engine_is_measured_in_turns_with_generate_and_compared(
    roomy_model: Path, tmp_path: Path
) -> None:
    earlier, file = tmp_path / "earlier.json", tmp_path / "results" / "serve.json"
    earlier.write_text('{"ratios": {"vs_generate_2": 98.5}}', encoding="utf-8")
    done = bench(tmp_path, roomy_model, "--part", "engine", "--json", str(file), "--compare", str(earlier))
    assert done.returncode == 0, done.stderr
    assert "98.5" in done.stdout
    result = json.loads(file.read_text(encoding="utf-8"))
    ratios = result["ratios"]
    for streams in (1, 2):
        ours = rate(result, "engine", "engine", streams)
        assert ratios[f"vs_generate_{streams}"] == pytest.approx(
            ours / rate(result, "engine", "generate", streams), abs=1e-3
        )
        adapted = rate(result, "engine", "engine_lora", streams)
        assert ratios[f"lora_tokens_{streams}"] == pytest.approx(adapted / ours, abs=1e-3)
        products = rate(result, "engine", "products", streams)
        assert products > ours
        assert ratios[f"of_products_{streams}"] == pytest.approx(ours / products, abs=1e-3)


def test_the_gateway_is_measured_in_turns_with_the_bare_engine(roomy_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "results" / "serve.json"
    done = bench(tmp_path, roomy_model, "--part", "gateway", "--json", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    ratios = result["ratios"]
    through, bare = (rate(result, "gateway", name, 2) for name in ("gateway", "engine"))
    assert ratios["gateway_tokens"] == pytest.approx(through / bare, abs=1e-3)
    first = result["parts"]["gateway"]["first_token_ms"]
    assert ratios["gateway_first_token_ms"] == pytest.approx(first["gateway"] - first["engine"], abs=0.06)
    assert result["parts"].keys() == {"gateway"}
    assert result["work"]["threads"] == 1


@pytest.mark.slow
def test_threads_that_spin_are_measured_beside_those_that_sleep(roomy_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    done = bench(tmp_path, roomy_model, "--part", "busy", "--json", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    alone, beside = (rate(result, "busy", name, 2) for name in ("engine", "engine_busy"))
    assert result["ratios"]["busy_2"] == pytest.approx(beside / alone, abs=1e-3)
    slept = rate(result, "busy", "sleeping_busy", 2)
    assert result["ratios"]["vs_sleeping_busy_2"] == pytest.approx(beside / slept, abs=1e-3)


@pytest.mark.slow
def test_reuse_learning_and_memory_are_measured(roomy_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    parts = [word for name in ("reuse", "learning", "memory") for word in ("--part", name)]
    done = bench(tmp_path, roomy_model, *parts, "--json", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    ratios = result["ratios"]
    reuse = result["parts"]["reuse"]
    without, reused = reuse["without"]["first_token_ms"], reuse["with"]["first_token_ms"]
    assert ratios["reuse_400"] == pytest.approx(without / reused, abs=0.01)
    learning = result["parts"]["learning"]
    assert learning["updates"] == 1
    share = learning["learning"]["tokens_per_second"] / learning["alone"]["tokens_per_second"]
    assert ratios["while_learning"] == pytest.approx(share, abs=1e-3)
    assert [sessions for sessions, _ in result["parts"]["memory"]["sessions_mb"]] == [5, 10, 20, 40]
    assert all(megabytes > 50 for _, megabytes in result["parts"]["memory"]["sessions_mb"])


def test_a_part_that_is_none_is_refused_in_one_line(roomy_model: Path, tmp_path: Path) -> None:
    refused = bench(tmp_path, roomy_model, "--part", "brakes")
    assert refused.returncode == 2
    assert refused.stderr == (
        "openclaw-rl: bench serve has no part brakes; "
        "choose from engine, gateway, reuse, learning, busy, memory, vllm\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="vLLM compiles with g++")
def test_vllm_answers_the_same_prompts(tmp_path: Path) -> None:
    # Its attention on CPUs knows no heads as narrow as the tiny model's.
    config = llama(hidden_size=128, head_dim=32, eos_token_id=2, max_position_embeddings=1024)
    model, file = make_tiny_model(tmp_path / "model", config), tmp_path / "serve.json"
    done = bench(tmp_path, model, "--part", "vllm", "--json", str(file))
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    for streams in (1, 2):
        for suffix in ("", "_lora"):
            ours, theirs = (rate(result, "vllm", f"{name}{suffix}", streams) for name in ("gateway", "vllm"))
            assert result["ratios"][f"vs_vllm{suffix}_{streams}"] == pytest.approx(ours / theirs, abs=1e-3)
    assert result["parts"]["vllm"]["versions"]["vllm"].startswith("0.")
