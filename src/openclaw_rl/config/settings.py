"""Every setting: a field with its default, its limits and the sentence that explains it.

Knows neither where values come from (`sources`) nor the loops: each is handed the section it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

EMBEDDED_MODEL = "smollm2-135m-instruct"
EMBEDDED_CONTEXT = 8192
"""Tokens of prompt and reply together that the embedded model takes."""

Method = Literal["binary", "opd", "opd_top_k", "combined", "hybrid", "sft"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def _refuse_nothing(value: object) -> object:
    """A variable that a script forgot to set must not become the working folder or another model."""
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("empty", "it is empty; leave it out to get the default")
    return value


Named = Annotated[str, BeforeValidator(_refuse_nothing)]
NamedPath = Annotated[Path, BeforeValidator(_refuse_nothing)]


class ModelSettings(Section):
    name: Named = EMBEDDED_MODEL
    """The policy: the embedded model, a Hugging Face name, or a folder."""
    served_name: str = ""
    """What clients call it; empty takes the last part of `name`."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Of the frozen weights. auto: bfloat16 where the processor computes in it, float32 elsewhere."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""


class ServerSettings(Section):
    host: Named = "127.0.0.1"
    """Where to listen. Anything but loopback needs api_keys."""
    port: int = Field(8780, ge=0, le=65535)
    """0 takes a free port."""
    api_keys: tuple[SecretStr, ...] = ()
    """Keys that clients may use, as `Authorization: Bearer KEY`. Each key is a tenant of its own. In front of
    an upstream, which gets that header, as `X-OpenClaw-RL-Key: KEY`."""
    max_body_mb: float = Field(16, gt=0)
    """Larger request bodies are refused with 413."""
    busy_seconds: float = Field(30, ge=0)
    """A request that finds the engine full is held open so long, then gets 429 with Retry-After."""

    @property
    def url(self) -> str:
        """Where clients on this machine reach it, without /v1; what listens everywhere listens here too."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


class UpstreamSettings(Section):
    url: str = ""
    """Record-only mode: the base URL of another OpenAI-compatible server, to which every request is passed
    on. Turns are kept and judged, and nothing trains. Empty serves the policy."""
    connect_seconds: float = Field(10, gt=0)
    """The upstream must accept a connection in this time."""
    silence_seconds: float = Field(900, gt=0)
    """Longest time without a byte of an answer; models that think before they speak are silent for long."""


class EngineSettings(Section):
    kind: Literal["embedded", "vllm", "sglang"] = "embedded"
    """What computes replies: embedded (PyTorch, in the server), or a vLLM or SGLang server."""
    url: str = ""
    """Where that server is, such as http://127.0.0.1:8000. Empty with vllm: one is started here."""
    api_key: SecretStr = SecretStr("")
    """Sent to engine.url."""
    command: str = ""
    """What starts vLLM's API server where engine.url is empty, such as `/opt/vllm/bin/python -m
    vllm.entrypoints.openai.api_server --gpu-memory-utilization 0.4`. Empty takes the vLLM of this Python."""
    wait_seconds: float = Field(60, ge=0)
    """How long the server waits for engine.url when it starts, and a request for an engine that is away."""
    max_concurrent: int = Field(16, ge=1)
    """Requests decoded together; more wait their turn. A server at engine.url has a limit of its own."""
    max_waiting: int = Field(256, ge=0)
    """Requests that may wait in the engine; beyond it they wait before it: see server.busy_seconds."""
    context_length: int = Field(0, ge=0)
    """Most tokens of prompt and reply together; 0 takes the model's own."""
    prefill_chunk: int = Field(256, ge=16)
    """Prompt tokens computed between two decode steps, so that a long prompt stalls nobody (embedded)."""
    cache_tokens: int = Field(32768, ge=0)
    """Tokens of finished conversations kept for reuse by their next turn (embedded)."""
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


def _is_a_judge(kind: str) -> str:
    if kind not in ("rules", "self") and not kind.startswith(("http://", "https://")):
        raise PydanticCustomError("judge", "use rules, self, or a base URL such as http://127.0.0.1:8000/v1")
    return kind


class JudgeSettings(Section):
    kind: Annotated[Named, AfterValidator(_is_a_judge)] = "rules"
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
    likeliest tokens. combined: rewards and opd. hybrid: rewards and opd_top_k. sft: accepted replies,
    as they are (a baseline)."""
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
    reward_weight: float = Field(0.6, ge=0)
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
    without_hint: Literal["nothing", "base", "earlier_hint"] = "earlier_hint"
    """What hybrid pulls a turn towards that has a score and no hint: nothing, the frozen base, or, if a
    person's words followed, the teacher that reads the hint which the same tenant's words gave last."""
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
    keep_versions: int = Field(8, ge=0)
    """Newest versions whose files are kept; of older ones the record stays. 0 keeps all."""
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
    data_dir: NamedPath = Path("~/.openclaw-rl")
    """Holds the store, the policy versions and the process files."""
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
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
