"""The nouns of the project, as frozen types.

Everything that the four loops hand to each other is one of these. This file knows no storage, no HTTP
and no tensors, and imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Message = dict[str, Any]
"""One chat message in OpenAI's JSON form: `role`, `content`, for agents `tool_calls` or `tool_call_id`."""

Tool = dict[str, Any]
"""One tool definition in OpenAI's JSON form."""

Score = Literal[-1, 0, 1]


class TurnKind(StrEnum):
    MAIN = "main"
    """Belongs to the conversation and may train."""
    SIDE = "side"
    """A helper call (title, summary, heartbeat, judge); never trains."""


class TurnState(StrEnum):
    """Where a turn stands on its way from being sampled to being trained. `Turn.state_reason` says why."""

    WAITING_NEXT_STATE = "waiting_next_state"
    WAITING_JUDGE = "waiting_judge"
    WAITING_UPDATE = "waiting_update"
    TRAINED = "trained"
    # The ends that do not train:
    SIDE = "side"
    UNPAIRED = "unpaired"
    """Its session closed before a next state came."""
    SUPERSEDED = "superseded"
    """The same request was sent again, so nothing was said about this reply."""
    ABORTED = "aborted"
    """The client hung up or the engine failed; nobody saw the whole reply."""
    UNJUDGED = "unjudged"
    """Every vote failed or could not be read. Not the same as a score of 0."""
    NO_SIGNAL = "no_signal"
    """Judged, but with neither a score nor a hint to learn from."""
    RECORDED = "recorded"
    """Judged, and made by another model than the policy: kept for export, never trained."""
    SET_ASIDE = "set_aside"
    """Too old, too long or otherwise unfit to learn from, or sampled in a way that cannot be learned from."""


class VersionState(StrEnum):
    CANDIDATE = "candidate"
    """Written by the learner, not yet live."""
    SERVING = "serving"
    RETIRED = "retired"
    REJECTED = "rejected"
    """Could not be loaded or failed its self-test; its parent went on serving."""
    ROLLED_BACK = "rolled_back"
    DELETED = "deleted"
    """Its files were deleted to save space; what it was made of stays on record."""


SMALLEST_TEMPERATURE = 1e-5
"""Below it tokens are drawn greedily, as vLLM does too: logits divided by less are no numbers any more."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens were drawn. Log-probs are always those of the full vocabulary at `temperature`
    (at 1.0 when `temperature` is 0, which means greedy), whatever top-p, top-k and a grammar left of it."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None
    grammar: str = ""
    """What the reply had to match, as llguidance's Lark text; empty for a free reply. Tokens that were drawn
    under one are no choice of the policy's own, so such a turn never trains."""
    top_logprobs: int = 0
    """How many of the likeliest tokens are told beside each sampled one."""
    unlearnable: str = ""
    """Why the engine could not record the log-probs defined above; such a turn never trains. Empty where it
    could."""


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation of one user with one agent."""

    id: str
    tenant: str
    created_at: float
    last_active_at: float
    closed_at: float | None = None
    close_reason: str | None = None


OTHER_MODEL = -1
"""The `policy_version` of a turn that no version of the policy made: another model answered, as recorded."""


def made_by_other(model: str) -> str:
    """Why such a turn never trains."""
    return f"recorded: made by {model}, not by the policy"


@dataclass(frozen=True, slots=True)
class Turn:
    """One completion by the policy, with the exact tokens it was made of; or one by another model, without.

    `response_ids` ends with the sampled end-of-turn token when there was one, and `logprobs` has one
    entry for each of `response_ids`, under `policy_version` at `sampling.temperature`.
    """

    id: str
    session_id: str
    kind: TurnKind
    state: TurnState
    model: str
    policy_version: int
    messages: tuple[Message, ...]
    reply: Message
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling: Sampling
    finish_reason: str
    created_at: float
    finished_at: float
    conversation_hash: str
    """Of the normalised messages including our reply; what a continuation's prefix must hash to."""
    request_hash: str = ""
    """Of the normalised messages without our reply; equal on a retry."""
    reply_hash: str = ""
    """Of our normalised reply alone, with its call ids; empty for one that says nothing."""
    parent_id: str | None = None
    kind_reason: str = ""
    state_reason: str = ""
    tools: tuple[Tool, ...] = ()
    update_id: int | None = None

    def __post_init__(self) -> None:
        if len(self.response_ids) != len(self.logprobs):
            raise ValueError(
                f"turn {self.id}: {len(self.response_ids)} sampled tokens but {len(self.logprobs)} log-probs"
            )
        if not self.by_policy and (self.prompt_ids or self.response_ids):
            raise ValueError(f"turn {self.id}: another model's turn holds tokens of the policy")

    @property
    def by_policy(self) -> bool:
        """Only such a turn may train."""
        return self.policy_version != OTHER_MODEL


NextStateSource = Literal["conversation", "edit", "feedback", "outcome"]


@dataclass(frozen=True, slots=True)
class NextState:
    """What followed a turn: all messages the client appended, an edit, or explicit feedback."""

    id: str
    turn_id: str
    source: NextStateSource
    messages: tuple[Message, ...]
    created_at: float
    given_score: Score | None = None
    """A score the user or the environment gave outright; it overrides the judge's."""

    @property
    def opens_with_user(self) -> bool:
        """Whether a person's words come first, and not a tool's result."""
        return bool(self.messages) and self.messages[0].get("role") == "user"


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer of a judge, kept raw. `score` is None when it could not be read; `error` says why."""

    question: Literal["evaluative", "directive"]
    score: int | None
    hint: str | None = None
    raw: str = ""
    error: str | None = None


SHORTEST_HINT = 10
"""A hint must be longer than this many UTF-8 bytes to be worth learning from."""


def hints_of(votes: Iterable[Vote]) -> list[str]:
    """The distinct hints of the directive votes that say 1, shortest first; those too short are left out."""
    hints = {
        vote.hint.strip()
        for vote in votes
        if vote.question == "directive" and vote.score == 1 and vote.hint is not None
    }
    # Equal lengths are ordered by the text, so that the order of the votes never matters.
    return sorted((hint for hint in hints if _size(hint) > SHORTEST_HINT), key=lambda h: (_size(h), h))


def _size(hint: str) -> int:
    return len(hint.encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The votes on (turn, next state) and what they came to.

    `score` is None when no vote could be read: unjudged, which is never the same as 0.
    """

    id: str
    turn_id: str
    next_state_id: str
    judge: str
    score: Score | None
    hint: str | None
    votes: tuple[Vote, ...]
    created_at: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A judged turn as the learner sees it."""

    turn: Turn
    judgement: Judgement
    next_state: NextState
    earlier_hint: str | None = None
    """What the same tenant's words last asked for before this turn was judged, where the learner wants it."""

    @property
    def reward(self) -> float:
        """The score; 0 where there is none. A score of 0 is no verdict either: the judge could not tell."""
        return float(self.judgement.score or 0)

    @property
    def hint(self) -> str | None:
        """The one hint that the judgement came to."""
        return self.judgement.hint

    @property
    def hints(self) -> list[str]:
        """Every hint that may teach this turn, shortest first; `hint` alone where there are no votes."""
        return hints_of(self.judgement.votes) or [hint for hint in (self.hint,) if hint]


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A set of weights. Version 0 is the model as it was loaded; `path` is None for it alone.

    `path` is relative to the data folder, which may be moved; versions made by earlier releases have an
    absolute one.
    """

    number: int
    parent: int | None
    state: VersionState
    path: str | None
    sha256: str | None
    created_at: float
    update_id: int | None = None
    state_reason: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """One optimiser step: the turns it was made of, what it measured, and the version it made."""

    id: int
    version: int
    method: str
    turn_ids: tuple[str, ...]
    metrics: dict[str, float]
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a process of ours last said about itself; `detail` is small and holds no conversation text."""

    name: str
    pid: int
    phase: str
    updated_at: float
    detail: dict[str, Any] = field(default_factory=dict)
