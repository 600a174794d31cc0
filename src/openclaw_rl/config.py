"""One settings object, from four sources in rising precedence: defaults, a TOML file, environment, flags.

Every setting is a field below with the sentence that explains it; `origins` tells where its value came
from. Knows no loop: each is handed the section it needs.
"""

from __future__ import annotations

import os
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

ENVIRONMENT_PREFIX = "OPENCLAW_RL_"
CONFIG_FILE = "openclaw-rl.toml"
EMBEDDED_MODEL = "smollm2-135m-instruct"

Method = Literal["binary", "opd", "opd_top_k", "combined", "hybrid"]


class ConfigError(ValueError):
    """A setting that cannot be used; `str(error)` is one line that says which, where from, and the fix."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelSettings(Section):
    name: str = EMBEDDED_MODEL
    """The policy: the embedded model, a Hugging Face name, or a folder."""
    served_name: str = ""
    """What clients call it; empty takes the last part of `name`."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Of the frozen weights. auto: bfloat16 where the processor computes in it, float32 elsewhere."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""


class ServerSettings(Section):
    host: str = "127.0.0.1"
    """Where to listen. Anything but loopback needs api_keys."""
    port: int = Field(8780, ge=0, le=65535)
    """0 takes a free port."""
    api_keys: tuple[SecretStr, ...] = ()
    """Keys that clients may use, as `Authorization: Bearer KEY`. Each key is a tenant of its own."""
    max_body_mb: float = Field(16, gt=0)
    """Larger request bodies are refused with 413."""
    busy_seconds: float = Field(30, ge=0)
    """A request that finds the engine full is held open so long, then gets 429 with Retry-After."""


class EngineSettings(Section):
    max_concurrent: int = Field(16, ge=1)
    """Requests decoded together; more wait their turn."""
    max_waiting: int = Field(256, ge=0)
    """Requests that may wait in the engine; beyond it they wait before it: see server.busy_seconds."""
    context_length: int = Field(0, ge=0)
    """Most tokens of prompt and reply together; 0 takes the model's own."""
    prefill_chunk: int = Field(256, ge=16)
    """Prompt tokens computed between two decode steps, so that a long prompt stalls nobody."""
    cache_tokens: int = Field(32768, ge=0)
    """Tokens of finished conversations kept for reuse by their next turn."""
    threads: int = Field(0, ge=0)
    """CPU threads when serving alone; 0 takes every core this process may use."""


class SamplingSettings(Section):
    temperature: float = Field(0.7, ge=0, le=2)
    """Used where a request names none."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Used where a request names none."""
    max_tokens: int = Field(512, ge=1)
    """Budget of a reply where a request names none."""


class SessionSettings(Section):
    idle_minutes: float = Field(24 * 60, gt=0)
    """A session without activity for so long is closed; its last turn stays unpaired."""


class JudgeSettings(Section):
    kind: str = "rules"
    """rules, self (the base weights), or the base URL of an OpenAI-compatible server."""
    model: str = ""
    """The model asked at a judge URL; empty asks the server which it has."""
    api_key: SecretStr = SecretStr("")
    """Sent to the judge URL."""
    votes: int = Field(3, ge=1, le=15)
    """Votes for each of the two questions when a model judges."""
    temperature: float = Field(0.6, ge=0, le=2)
    max_tokens: int = Field(1024, ge=16)
    timeout_seconds: float = Field(60, gt=0)
    """For one vote."""
    retries: int = Field(2, ge=0)
    """More tries for a vote that failed; a vote that cannot be read is not asked again."""
    concurrency: int = Field(4, ge=1)
    """Votes in flight at once."""


class LearnSettings(Section):
    enabled: bool = True
    """False keeps judging and stops training."""
    method: Method = "hybrid"
    """binary: rewards. opd: the sampled tokens' log-probs under the model that saw the hint. opd_top_k: its
    likeliest tokens. combined: rewards and opd. hybrid: rewards and opd_top_k."""
    batch_size: int = Field(16, ge=1)
    """Samples of one update."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of Adam, at the first update. Right for an adapter on the embedded model; try 1e-4 from 1B on."""
    decay_updates: float = Field(10.0, ge=0)
    """The rate falls as 1 / (1 + updates / this), to a tenth at the least; 0 keeps it constant."""
    lora_rank: int = Field(16, ge=1)
    lora_alpha: float = Field(32, gt=0)
    lora_targets: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Linear layers that get an adapter, by the last part of their name."""
    full_fine_tuning: bool = False
    """Train every weight instead of an adapter."""
    reward_weight: float = Field(0.3, ge=0)
    """Of the score."""
    baseline_decay: float = Field(0.0, ge=0, lt=1)
    """Above 0 (0.9 is usual), the running mean of past scores but 0 is subtracted from a lone reply's."""
    teacher: Literal["base", "current"] = "base"
    """Who reads the hint and is distilled: the frozen base or the current policy."""
    hint_weight: float = Field(1.0, ge=0)
    """Of what the teacher says."""
    max_hints: int = Field(3, ge=1)
    """Candidate hints of one turn, for hybrid and opd_top_k; the shortest are kept."""
    hint_selection: Literal["sequence_optimal", "token_optimal", "shortest"] = "sequence_optimal"
    """Which candidate teaches: of the largest overlap with the policy over the reply, at each token, or the
    shortest."""
    top_k: int = Field(4, ge=1)
    """Tokens compared at each position, for hybrid and opd_top_k."""
    distilled_tokens: Literal["student", "teacher", "overlap"] = "student"
    """Whose likeliest tokens are compared."""
    max_gap: float = Field(1.0, gt=0)
    """Bound on the teacher's log-prob gap at one token, for hybrid."""
    without_hint: Literal["nothing", "base", "earlier_hint"] = "nothing"
    """What hybrid pulls a turn towards that has a score and no hint: nothing, the frozen base, or the
    teacher that reads the hint which the same tenant gave last (one person's standing wish)."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    max_ratio: float = Field(10.0, gt=1)
    """Importance ratios are truncated here."""
    max_sequence_ratio: float = Field(2.0, gt=1)
    """A sample whose mean token ratio (geometric) is above this, or below its inverse, does not learn from
    its sampled tokens: neither from its score nor, with opd and combined, from its hint."""
    kl_weight: float = Field(0.0, ge=0)
    """Pull towards the frozen base on the sampled tokens."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """k1 is taken from the advantage; k2 and k3 are added to the loss."""
    entropy_weight: float = Field(0.0, ge=0)
    """Of an entropy bonus."""
    max_grad_norm: float = Field(1.0, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_staleness: int = Field(4, ge=0)
    """Updates that may lie between a sample's version and the newest; an older sample is set aside."""
    max_sample_tokens: int = Field(8192, ge=64)
    """A longer sample (prompt and reply) is set aside, never cut."""
    tokens_per_pass: int = Field(2048, ge=64)
    """Tokens of one forward and backward pass; bounds the learner's memory."""
    threads: int = Field(0, ge=0)
    """CPU threads when learning alone; 0 takes every core this process may use."""
    seed: int = 0


class Settings(Section):
    data_dir: Path = Path("~/.openclaw-rl")
    """Holds the store, the policy versions and the process files."""
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    sampling: SamplingSettings = SamplingSettings()
    sessions: SessionSettings = SessionSettings()
    judge: JudgeSettings = JudgeSettings()
    learn: LearnSettings = LearnSettings()

    @property
    def home(self) -> Path:
        """`data_dir`, with ~ resolved."""
        return self.data_dir.expanduser().absolute()

    @property
    def database(self) -> Path:
        return self.home / "store.sqlite"

    @property
    def served_name(self) -> str:
        return self.model.served_name or self.model.name.rstrip("/").rsplit("/", 1)[-1]


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
            raise ConfigError(
                f"environment variable {variable} is no setting; `openclaw-rl config` lists them"
            )
    for name, value in (flags or {}).items():
        if value is not None:
            parsed = _from_text(name, value) if isinstance(value, str) else value
            values[name], origins[name] = parsed, "flag"

    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields():
            raise ConfigError(f"{origins[name]}: {name} is no setting; `openclaw-rl config` lists them")
        *section, key = name.split(".")
        (nested.setdefault(section[0], {}) if section else nested)[key] = value
    try:
        settings = Settings(**nested)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        shown = "" if _is_secret(name) else f" = {first['input']!r}"
        raise ConfigError(f"{origins.get(name, '?')}: {name}{shown}: {first['msg']}") from None
    return settings, origins


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


def describe(settings: Settings) -> dict[str, str]:
    """Every setting's dotted name with its value as text; secrets are masked."""
    return {name: _shown(_value(settings, name)) for name in fields()}


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _is_secret(name: str) -> bool:
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
    """Text from a flag or the environment: lists are split at commas, the rest is left to validation."""
    kind = fields().get(name)
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if any(get_origin(option) is tuple for option in options):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


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
