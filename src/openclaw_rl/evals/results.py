"""Measured numbers as a file that can be committed and compared. Knows no measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.config import ConfigError


def write(path: Path, numbers: Mapping[str, Any]) -> None:
    """JSON, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path, command: str) -> dict[str, Any]:
    """What `command` wrote in an earlier run. Raises ConfigError when the file holds no ratios."""
    try:
        earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        earlier["ratios"].get("any")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"--compare {path} is no result of `{command}`: {error}") from None
    return earlier
