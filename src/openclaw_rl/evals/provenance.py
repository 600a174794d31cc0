"""Where a measured number comes from: the commit of the checkout, or the release. Knows no measurement."""

from __future__ import annotations

import subprocess
from pathlib import Path

from openclaw_rl import __version__


def commit() -> str:
    """The checkout's commit, or the release when this is no checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"release {__version__}"
    return result.stdout.strip()
