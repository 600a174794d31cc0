"""Where a measured number comes from: the commit of the checkout, or the release. Knows no measurement."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

from openclaw_rl import __version__


def commit() -> str:
    """The checkout's commit, with -dirty if its files have changed since, or the release without a checkout.

    To be asked before a measurement: the checkout may move on while it runs.
    """
    here = str(Path(__file__).parent)
    command = ["git", "-C", here, "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"release {__version__}"
    return result.stdout.strip()


def machine() -> dict[str, str | int]:
    """Processor, number of its cores, and the moment."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
