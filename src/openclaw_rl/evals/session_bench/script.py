"""Labelled conversations as they stand in `data/*.toml`: steps, and what is right about each of them.

A step is one request. It says what the client did to its history before it asked, what the policy replied,
and, where the ordinary reading would be wrong, the labels. Knows no client's wire form.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

Kind = Literal["main", "side"]

NONE = "none"
"""In `answers`: this request brings the next state of no reply."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the policy; `id` is given once the server has answered."""

    name: str
    arguments: dict[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy gave, as written in the script or as it came over HTTP."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    response_id: str = ""
    signature: str = ""
    """Of a thinking block, in Anthropic's protocol."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a client, and what came back."""

    id: str
    reply: Reply
    thread: str = "a"
    """The transcript that it belongs to, as the client keeps it."""
    user: tuple[str, ...] = ()
    """User messages that it adds, in the user's own words."""
    results: tuple[str, ...] = ()
    """Results that it adds, one for each call of the reply before."""
    side: str = ""
    """The sort of helper request, such as "title"; each client knows its own. Not kept in the history..."""
    keep: bool = False
    """...unless this says so."""
    of: str = ""
    """The thread starts as a copy of that one."""
    again: bool = False
    """The request before in this thread, once more."""
    back_to: str = ""
    """The history as it was before that step, which is then written anew."""
    after: str = ""
    """The history as it was after the reply to that step."""
    fresh: bool = False
    """The history starts anew in place."""
    summary: str = ""
    """All but the newest `tail` entries are replaced by this summary."""
    tail: int = 0
    window: int = 0
    """Only that many of the newest entries are still known to the client."""
    lost: bool = False
    """The reply did not reach the client's history."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the client, for this request only."""
    messages: tuple[dict[str, Any], ...] = ()
    """The whole list, where the client's own rendering would not do."""
    # Labels, where they are not the ordinary ones:
    kind: Kind | None = None
    session: str = ""
    """From here on the thread belongs to this session."""
    answers: str = ""
    next: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests of one client, perhaps in several threads at once."""

    name: str
    kind: str
    client: str
    why: str
    """What makes it worth having, and why the labels are as they are."""
    held_out: bool
    """Written last, kept apart from what the gateway's rules were made with."""
    options: dict[str, Any]
    threads: dict[str, dict[str, Any]]
    """Options of single threads."""
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """What is right about one request."""

    kind: Kind
    session: str
    answers: str | None
    """The step whose reply this request brings the next state of."""
    next: tuple[str, ...]
    """The texts of that next state, message by message, without what the client injected."""


def load() -> list[Conversation]:
    """All conversations, file by file in the order of their names.

    Raises ValueError for a script that cannot be meant: an unknown field, a name or a step used twice.
    """
    folder = files("openclaw_rl.evals.session_bench").joinpath("data")
    found = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        written = tomllib.loads(file.read_text(encoding="utf-8"))["conversation"]
        found += [_conversation(raw, file.name.startswith("held_out")) for raw in written]
    names = [conversation.name for conversation in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two conversations have one name: {', '.join(sorted(twice))}")
    return found


def _conversation(raw: dict[str, Any], held_out: bool) -> Conversation:
    steps = tuple(_step(dict(step), number) for number, step in enumerate(raw["steps"], 1))
    ids = [step.id for step in steps]
    named = (
        {step.answers for step in steps} | {step.back_to for step in steps} | {step.after for step in steps}
    )
    if len(set(ids)) < len(ids) or named - {"", NONE, *ids}:
        raise ValueError(f"{raw['name']}: a step is named twice, or one is meant that is not there")
    return Conversation(
        name=raw["name"],
        kind=raw["kind"],
        client=raw["client"],
        why=raw.get("why", ""),
        held_out=held_out,
        options=raw.get("options", {}),
        threads=raw.get("threads", {}),
        steps=steps,
    )


def _step(raw: dict[str, Any], number: int) -> Step:
    reply = Reply(
        raw.pop("reply", ""), tuple(map(_call, raw.pop("calls", []))), thought=raw.pop("thought", "")
    )
    user = raw.pop("user", ())
    next_state = raw.pop("next", None)
    named: dict[str, Any] = {n: str(raw.pop(n)) for n in ("answers", "back_to", "after") if n in raw}
    return Step(
        id=str(raw.pop("id", number)),
        reply=reply,
        user=(user,) if isinstance(user, str) else tuple(user),
        results=tuple(raw.pop("results", ())),
        messages=tuple(raw.pop("messages", ())),
        options=raw.pop("with", {}),
        next=None
        if next_state is None
        else tuple([next_state] if isinstance(next_state, str) else next_state),
        **named,
        **raw,
    )


def _call(written: str) -> Call:
    """`name {"argument": 1}` as a call."""
    name, _, arguments = written.partition(" ")
    return Call(name, json.loads(arguments or "{}"))
