"""One settings object: its fields, and the sources that its values come from."""

from openclaw_rl.config.settings import (
    EMBEDDED_CONTEXT,
    EMBEDDED_MODEL,
    JudgeSettings,
    LearnSettings,
    Method,
    SamplingSettings,
    Settings,
)
from openclaw_rl.config.sources import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    describe,
    fields,
    is_secret,
    load,
    meanings,
)

__all__ = [
    "EMBEDDED_CONTEXT",
    "EMBEDDED_MODEL",
    "ENVIRONMENT_PREFIX",
    "ConfigError",
    "JudgeSettings",
    "LearnSettings",
    "Method",
    "SamplingSettings",
    "Settings",
    "describe",
    "fields",
    "is_secret",
    "load",
    "meanings",
]
