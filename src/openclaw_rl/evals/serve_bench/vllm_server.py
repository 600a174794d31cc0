"""vLLM's own server on this machine's CPU, as fast as we know how to start it.

With adapters it does not compile the model, so the one without them is a server of its own. Knows no
measurement; `rivals` makes the environment.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from openclaw_rl import process_environment
from openclaw_rl.config import ConfigError
from openclaw_rl.processes.local_vllm import LORA_RANKS, MODULE

START_SECONDS = 1200.0
"""The first time it compiles the model, which takes minutes on a machine that does nothing else."""
STOP_SECONDS = 15.0
CACHE_GB = 2
"""Of keys and values; some tens of thousands of tokens of the embedded model."""
BASE, ADAPTED = "base", "adapted"
"""What the models are called."""


@contextmanager
def vllm_server(
    python: Path,
    model_folder: Path,
    *,
    adapter: Path | None,
    rank: int,
    targets: Sequence[str],
    dtype: str,
    threads: int,
    streams: int,
    context: int,
    cache: Path,
    log: Path,
) -> Iterator[str]:
    """The URL of a server with the model as `base` and, given an adapter, as `adapted` too.

    `cache` keeps what it compiles. Raises ConfigError when it does not come up.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(python), "-m", MODULE, "--model", str(model_folder)]
    command += ["--served-model-name", BASE, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", dtype, "--max-model-len", str(context), "--max-num-seqs", str(streams)]
    command += ["--block-size", "32", "--distributed-executor-backend", "uni"]
    command += ["--generation-config", "vllm", "--disable-uvicorn-access-log"]
    if adapter is not None:
        room = next((each for each in LORA_RANKS if each >= rank), rank)
        command += ["--enable-lora", "--max-lora-rank", str(room), "--max-loras", "1"]
        command += ["--lora-modules", f"{ADAPTED}={adapter}", "--lora-target-modules", *targets]
    with log.open("ab") as said:
        # A group of its own: it has children, and one that is still starting does not stop when asked to.
        server = subprocess.Popen(
            command, env=_environment(threads, cache), stdout=said, stderr=said, process_group=0
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(server, url, log)
        yield url
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _environment(threads: int, cache: Path) -> dict[str, str]:
    theirs = process_environment.others()
    theirs.pop("PYTHONPATH", None)  # our code
    return {
        **theirs,
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GB),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise ConfigError(f"vLLM could not start ({_why(log)}); leave it out with --no-rival")
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/health", timeout=5).status_code == httpx2.codes.OK:
                return
        time.sleep(0.5)
    raise ConfigError(f"vLLM did not start within {START_SECONDS:.0f} s; leave it out with --no-rival")


def _why(log: Path) -> str:
    """The last error of its log, with what is said of it."""
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    errors = [place for place, line in enumerate(said) if "Error" in line]
    return " ".join(said[errors[-1] : errors[-1] + 3]) if errors else "it did not say why"
