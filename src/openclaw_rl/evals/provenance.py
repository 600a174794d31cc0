"""Where a measured number comes from: the commit of the checkout, or the release. Knows no measurement."""

from __future__ import annotations

import subprocess
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
