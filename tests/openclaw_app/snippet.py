"""What `openclaw-rl connect openclaw` prints, as a user gets it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from running_processes import environment


def connect(url: str) -> tuple[dict[str, Any], str]:
    """The patch for a server's URL, and the remarks that came with it."""
    done = subprocess.run(
        [sys.executable, "-m", "openclaw_rl", "connect", "openclaw", "--url", url],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    patch: dict[str, Any] = json.loads(done.stdout)
    return patch, done.stderr


def shortened(patch: dict[str, Any]) -> dict[str, Any]:
    """The same for a test: replies are short and as likely as can be."""
    (provider,) = patch["models"]["providers"].values()
    (model,) = provider["models"]
    model["maxTokens"] = 48
    primary = patch["agents"]["defaults"]["model"]["primary"]
    patch["agents"]["defaults"]["models"] = {primary: {"params": {"temperature": 0}}}
    return patch
