"""What the store holds, told for people: the state of everything, and where a number came from.

Reads the store and makes rich tables and plain text; writes nothing. The commands `status` and `show`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.model import PolicyVersion, Update
from openclaw_rl.store import Store
from openclaw_rl.store.progress import MEANING


def status(store: Store, settings: Settings) -> Iterator[Any]:
    """The parts of `openclaw-rl status`."""
    sessions = store.conversations.count_sessions()
    yield f"sessions: {sessions['open']} open, {sessions['closed']} closed"
    counts = store.progress.counts()
    turns = Table("turns", "", box=None)
    for state, meaning in MEANING.items():
        if state in counts or state.value.startswith("waiting"):
            turns.add_row(str(counts.get(state, 0)), meaning)
    yield turns
    upstream = _upstream(store)
    yield f"recording what {upstream} answers; nothing trains" if upstream else next_update(store, settings)
    reasons = store.conversations.reasons()
    if reasons:
        why = Table("not trained", "because", box=None)
        for state, reason, count in reasons:
            why.add_row(f"{count} {state.value}", reason)
        yield why
    if not upstream:
        yield from _versions(store)
    yield from _processes(store)


def _upstream(store: Store) -> str:
    """What the server was in front of when it last said something; empty for a server of the policy."""
    server = store.reports().get("server")
    return str(server.detail.get("upstream", "")) if server else ""


def next_update(store: Store, settings: Settings) -> str:
    coming = store.progress.next_update(settings.learn.batch_size)
    said = f"next update: {min(coming.collected, coming.needed)} of {coming.needed} samples collected"
    if not settings.learn.enabled:
        return f"{said}; none will come, since learn.enabled is false"
    return f"{said}, {coming.missing} more needed" if coming.missing else said


def _versions(store: Store) -> Iterator[Any]:
    serving = store.learning.serving_version()
    if serving is not None:
        yield f"serving: version {serving.number}; parents: {_ancestry(store, serving) or 'none'}"
    last = store.learning.last_update()
    if last is not None:
        ago = time.time() - last.finished_at
        yield f"last update: {last.id} ({last.method}), {ago:.0f} s ago, made version {last.version}"


def _ancestry(store: Store, version: PolicyVersion, most: int = 8) -> str:
    numbers: list[str] = []
    parent = version.parent
    while parent is not None and len(numbers) < most:
        numbers.append(str(parent))
        above = store.learning.version(parent)
        parent = above.parent if above else None
    return ", ".join(numbers) + (", …" if parent is not None else "")


def _processes(store: Store) -> Iterator[Any]:
    table = Table("process", "does", "said", box=None)
    for report in store.reports().values():
        facts = ", ".join(f"{name} {value}" for name, value in report.detail.items())
        ago = time.time() - report.updated_at
        table.add_row(report.name, f"{report.phase}: {facts}" if facts else report.phase, f"{ago:.0f} s ago")
    yield table


def show(store: Store, kind: str, name: str) -> Any:
    """A turn, sample, update or version with everything behind it, or the newest turns.

    Raises ConfigError for a kind or name that there is none of.
    """
    if kind == "turns":
        return _newest_turns(store)
    if kind in ("turn", "sample", "update", "version") and not name:
        raise ConfigError(f"show {kind}: say which; `show turns` lists turns, `status` the last update")
    if kind == "turn":
        return _as_text(_turn(store, name))
    if kind == "sample":
        return _as_text(_sample(store, name))
    if kind == "update":
        return _as_text(_update(store, _number(kind, name)))
    if kind == "version":
        return _as_text(_version(store, _number(kind, name)))
    raise ConfigError(f"show {kind}: say turns, turn, sample, update or version")


def _newest_turns(store: Store, most: int = 20) -> Table:
    table = Table("turn", "score", "version", "stands where it does because", box=None)
    for one in store.progress.standings(limit=most):
        score = "" if one.score is None else f"{one.score:+d}"
        version = str(one.policy_version) if one.by_policy else one.model
        table.add_row(one.turn_id, score, version, f"{one.state.value}: {one.reason}")
    return table


def _turn(store: Store, name: str) -> dict[str, Any]:
    turn = store.conversations.turn(name.removeprefix("chatcmpl-"))
    if turn is None:
        raise ConfigError(f"there is no turn {name}; `show turns` lists the newest")
    facts = asdict(turn)
    for long in ("prompt_ids", "response_ids", "logprobs"):
        facts[long] = f"{len(facts[long])} values"
    return {
        **facts,
        "mean_logprob": sum(turn.logprobs) / len(turn.logprobs) if turn.logprobs else None,
        "usage": store.recordings.usage(turn.id),
        "next_states": [asdict(next_state) for next_state in store.conversations.next_states(turn.id)],
        "judgements": [asdict(judgement) for judgement in store.learning.judgements(turn.id)],
    }


def _sample(store: Store, name: str) -> dict[str, Any]:
    turn_id = name.removeprefix("chatcmpl-")
    sample = store.learning.sample(turn_id)
    if sample is None:
        raise ConfigError(f"turn {name} is no sample: it has no judgement, or there is no such turn")
    return {
        "turn": turn_id,
        "state": sample.turn.state,
        "policy_version": sample.turn.policy_version,
        "reward": sample.reward,
        "hint": sample.hint,
        "reply": sample.turn.reply,
        "next_state": asdict(sample.next_state),
        "judgement": asdict(sample.judgement),
        "update": sample.turn.update_id,
    }


def _update(store: Store, number: int) -> dict[str, Any]:
    update = store.learning.update(number)
    if update is None:
        raise ConfigError(f"there is no update {number}")
    return {**asdict(update), "samples": [_summary(store, turn_id) for turn_id in update.turn_ids]}


def _summary(store: Store, turn_id: str) -> dict[str, Any]:
    sample = store.learning.sample(turn_id)
    if sample is None:
        return {"turn": turn_id}
    return {
        "turn": turn_id,
        "policy_version": sample.turn.policy_version,
        "reward": sample.reward,
        "hint": sample.hint,
        "judge": sample.judgement.judge,
    }


def _version(store: Store, number: int) -> dict[str, Any]:
    version = store.learning.version(number)
    if version is None:
        raise ConfigError(f"there is no version {number}")
    update: Update | None = store.learning.update(version.update_id) if version.update_id else None
    made_by = _update(store, update.id) if update else None
    return {**asdict(version), "ancestors": _ancestry(store, version), "made_by": made_by}


def _number(kind: str, name: str) -> int:
    if not name.isdecimal() or len(name) > 18:  # more digits than a database's integer has
        raise ConfigError(f"show {kind} {name}: give its number")
    return int(name)


def _as_text(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, ensure_ascii=False, default=str)
