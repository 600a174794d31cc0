"""A vLLM server of our own on this machine: with the right flags, behind a key, ended with us.

Only this process knows its key, so nobody else on the machine can load adapters there. Knows no requests.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.policy.embedded import model_files

MODULE = "vllm.entrypoints.openai.api_server"
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Which vLLM reserves room for."""
LIVE_VERSIONS = 5
"""Adapters that may be computed together: the base as one, the serving one, older ones with requests, and one
being tested."""
LOADED_VERSIONS = 16
LOG_FILE = "vllm.log"
_SHARE_OF_GPU = "0.5"
"""The learner needs the rest."""


class LocalVllm:
    """A running server; `url` and `api_key` are how it is reached, once it is ready."""

    def __init__(self, settings: Settings, model_folder: Path) -> None:
        """Start it. Raises ConfigError where it cannot be."""
        command = command_of(settings)
        given = {word.partition("=")[0] for word in command}
        command += [word for flag in flags(settings, model_folder) if flag[0] not in given for word in flag]
        self.api_key = secrets.token_hex(16)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = settings.home / LOG_FILE
        settings.home.mkdir(parents=True, exist_ok=True)
        keeper = [sys.executable, "-m", "openclaw_rl.processes.keeper", str(os.getpid())]
        with self.log.open("wb") as said:
            self._keeper = subprocess.Popen(
                [*keeper, *command, "--host", "127.0.0.1", "--port", str(port)],
                env=environment(settings, self.api_key),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )
        self._ending = False

    @property
    def is_kept(self) -> bool:
        """Whether it runs, or is about to."""
        return self._keeper.poll() is None

    def end_us_with_it(self) -> None:
        """From now on, ask this process to stop (SIGTERM) when the server has ended for good."""

        def watch() -> None:
            self._keeper.wait()
            if not self._ending:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="vllm-watch", daemon=True).start()

    def end(self) -> None:
        """End it and wait until nothing of it is left."""
        self._ending = True
        self._keeper.terminate()
        self._keeper.wait()


def command_of(settings: Settings) -> list[str]:
    """What starts vLLM's API server. Raises ConfigError when there is none."""
    if settings.engine.command:
        words = shlex.split(settings.engine.command)
        if shutil.which(words[0]) is None:
            raise ConfigError(f"engine.command: there is no {words[0]} to run")
        return words
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine.kind is vllm, but vLLM is not installed in this Python: name a running server with "
            "--engine-url, or the command that starts one in engine.command"
        )
    return [sys.executable, "-m", MODULE]


def flags(settings: Settings, model_folder: Path) -> list[tuple[str, ...]]:
    """What the engine needs of the server, unless the user's command says it: see docs/engines.md."""
    device = model_files.choose_device(settings.model.device)
    dtype = model_files.choose_dtype(settings.model.dtype, device)
    rank = next((each for each in LORA_RANKS if each >= settings.learn.lora_rank), None)
    if rank is None:
        raise ConfigError(f"learn.lora_rank: vLLM takes at most {LORA_RANKS[-1]}")
    found: list[tuple[str, ...]] = [
        ("--model", str(model_folder)),
        ("--served-model-name", "base"),
        ("--dtype", str(dtype).removeprefix("torch.")),
        ("--max-num-seqs", str(settings.engine.max_concurrent)),
        ("--logprobs-mode", "processed_logprobs"),
        ("--enable-lora",),
        ("--max-lora-rank", str(rank)),
        ("--max-loras", str(LIVE_VERSIONS)),
        ("--max-cpu-loras", str(LOADED_VERSIONS)),
        # Named, since with room for an adapter of the vocabulary projection scoring beside other requests
        # ends the server.
        ("--lora-target-modules", *settings.learn.lora_targets),
        ("--disable-uvicorn-access-log",),
    ]
    if settings.engine.context_length:
        found.append(("--max-model-len", str(settings.engine.context_length)))
    if device.type == "cpu":
        # One process that computes, and blocks that short prompts can share.
        found += [("--distributed-executor-backend", "uni"), ("--block-size", "32")]
    else:
        found.append(("--gpu-memory-utilization", _SHARE_OF_GPU))
    return found


def environment(settings: Settings, api_key: str) -> dict[str, str]:
    """Nothing leaves the machine, and adapters may be loaded while it serves; the user's own values stay."""
    always = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_API_KEY": api_key,
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    unless_set = {"VLLM_LOGGING_LEVEL": "WARNING"}
    if model_files.choose_device(settings.model.device).type == "cpu":
        unless_set |= {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return {**unless_set, **os.environ, **always}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
