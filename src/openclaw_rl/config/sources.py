"""Where settings come from, in rising precedence: defaults, a TOML file, environment, flags.

Each value's origin is kept, so that an error and `openclaw-rl config` can name it. Knows no setting by name.
"""

from __future__ import annotations

import json
import os
import tomllib
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import SecretStr, ValidationError

from openclaw_rl.config.settings import Section, Settings

ENVIRONMENT_PREFIX = "OPENCLAW_RL_"
CONFIG_FILE = "openclaw-rl.toml"
LIKENESS = 0.8
"""Of two names, from which on one is taken for a slip in the other."""


class ConfigError(ValueError):
    """A setting that cannot be used; `str(error)` is one line that says which, where from, and the fix."""


def load(
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """Settings and, for each dotted name, where its value came from.

    `flags` maps dotted names ("learn.method") to values; None values are skipped. Without `config_file`
    an `openclaw-rl.toml` in the working folder is read if there is one. Raises ConfigError.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = dict.fromkeys(fields(), "default")

    path = config_file or Path(CONFIG_FILE)
    if config_file is not None and not path.exists():
        raise ConfigError(f"{path} does not exist; leave out --config or write the file")
    if path.exists():
        for name, value in _flatten(_read_toml(path)).items():
            values[name], origins[name] = value, f"file {path}"
    known_variables = {_variable(name): name for name in fields()}
    for variable, text in environment.items():
        if variable in known_variables:
            name = known_variables[variable]
            values[name], origins[name] = _from_text(name, text), f"environment {variable}"
        elif variable.startswith(ENVIRONMENT_PREFIX) and variable != f"{ENVIRONMENT_PREFIX}CACHE":
            raise ConfigError(f"environment variable {_no_setting(variable, known_variables)}")
    for name, value in (flags or {}).items():
        if value is not None:
            parsed = _from_text(name, value) if isinstance(value, str) else value
            values[name], origins[name] = parsed, "flag"

    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields():
            raise ConfigError(f"{origins[name]}: {_no_setting(name, fields())}")
        *section, key = name.split(".")
        (nested.setdefault(section[0], {}) if section else nested)[key] = value
    try:
        settings = Settings(**nested)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        shown = "" if is_secret(name) else f" = {first['input']!r}"
        raise ConfigError(f"{origins.get(name, '?')}: {name}{shown}: {first['msg']}") from None
    return settings, origins


def _no_setting(name: str, known: Iterable[str]) -> str:
    """What is said of an unknown name: the known one that looks most like it, if any does."""
    # Without what all variables begin with, which would make any two of them alike.
    bare = {one.removeprefix(ENVIRONMENT_PREFIX): one for one in known}
    meant = get_close_matches(name.removeprefix(ENVIRONMENT_PREFIX), bare, n=1, cutoff=LIKENESS)
    guess = f"did you mean {bare[meant[0]]}? " if meant else ""
    return f"{name} is no setting; {guess}`openclaw-rl config` lists them"


def fields() -> dict[str, Any]:
    """Every setting's dotted name with its type."""
    found: dict[str, Any] = {}
    for name, info in Settings.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found.update({f"{name}.{key}": inner.annotation for key, inner in kind.model_fields.items()})
        else:
            found[name] = kind
    return found


def meanings() -> dict[str, str]:
    """Every setting's dotted name with the sentence that explains it; empty where the name says it all."""
    found: dict[str, str] = {}
    for name, info in Settings.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found.update({f"{name}.{key}": of.description or "" for key, of in kind.model_fields.items()})
        else:
            found[name] = info.description or ""
    return {name: " ".join(meaning.split()) for name, meaning in found.items()}


def describe(settings: Settings) -> dict[str, str]:
    """Every setting's dotted name with its value as text; secrets are masked."""
    return {name: _shown(_value(settings, name)) for name in fields()}


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def is_secret(name: str) -> bool:
    """Whether a setting is never shown."""
    kind = fields().get(name)
    return kind is SecretStr or SecretStr in get_args(kind)


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return ", ".join(_shown(item) for item in value)
    return str(value)


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def _from_text(name: str, text: str) -> Any:
    """Text from a flag or the environment: lists are JSON or split at commas, the rest is left as it is."""
    kind = fields().get(name)
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if not any(get_origin(option) is tuple for option in options):
        return text
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            raise ConfigError(f'{name}: write a list as "a,b" or as JSON, ["a", "b"]') from None
    return [part.strip() for part in text.split(",") if part.strip()]


def _flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return flat


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
