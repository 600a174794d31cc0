"""TRL in an environment of its own, made once in the cache folder; nothing of it enters ours.

Knows how to make the environment and to run a script in it, not what the script measures.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from openclaw_rl.config import ConfigError

PACKAGES = ("trl>=1.0", "peft>=0.17", "datasets")

Say = Callable[[str], None]


def python_with_trl(cache: Path, say: Say) -> Path:
    """The Python of the environment. Raises ConfigError when it cannot be made."""
    folder = cache / "trl"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    say(f"making an environment with TRL in {folder}: a few minutes, once")
    venv.create(folder, with_pip=True, clear=True)
    # The same PyTorch as ours, from wherever ours came: it is found in the same index or in pip's cache.
    torch = f"torch=={version('torch').partition('+')[0]}"
    for packages in ((torch,), PACKAGES):
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise ConfigError(f"TRL cannot be installed ({last}); leave it out with --no-rival")
    ready.write_text(sys.version, encoding="utf-8")
    return python
