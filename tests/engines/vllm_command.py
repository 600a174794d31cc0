"""A command that looks like vLLM's API server: our stand-in, with a child that outlives a careless end.

Refuses to start without the flags and the environment that the engine needs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

sys.path.append(str(Path(__file__).parents[1] / "embedded"))
sys.path.append(str(Path(__file__).parents[1] / "processes"))

from vllm_stand_in import TinyVllm, vllm_app


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--host", "--port", "--logprobs-mode", "--max-lora-rank", "--children"):
        parser.add_argument(name, required=True)
    parser.add_argument("--enable-lora", action="store_true")
    given, _ = parser.parse_known_args()
    assert given.enable_lora
    assert given.logprobs_mode == "processed_logprobs"
    assert os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    state = TinyVllm(Path(given.model), most_rank=int(given.max_lora_rank))
    child = subprocess.Popen(["sleep", "1000"])
    Path(given.children).write_text(f"{os.getpid()} {child.pid}", encoding="ascii")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as while vLLM loads a model
    server = Unmoved(
        uvicorn.Config(
            vllm_app(state, os.environ["VLLM_API_KEY"]),
            host=given.host,
            port=int(given.port),
            log_config=None,
        )
    )
    server.run()


class Unmoved(uvicorn.Server):
    """One that no signal ends but the one that cannot be caught."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


if __name__ == "__main__":
    main()
