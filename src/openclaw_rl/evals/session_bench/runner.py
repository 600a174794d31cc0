"""Posts every conversation to the real gateway over HTTP, and reads what its store recorded.

All conversations run at once, a request of each in turn, as the clients of one server do. The engine says
what the scripts say; the rest is the server that people run. What is read are the words that a judge sees.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from openclaw_rl.config import Settings
from openclaw_rl.evals.byte_template import byte_template
from openclaw_rl.evals.scripted_engine import ScriptedEngine
from openclaw_rl.evals.scripted_server import serving
from openclaw_rl.evals.session_bench.answers import reply_of
from openclaw_rl.evals.session_bench.clients.by_name import CLIENTS
from openclaw_rl.evals.session_bench.player import Player
from openclaw_rl.evals.session_bench.script import Conversation, Label, Reply, Step
from openclaw_rl.gateway.app import create_app
from openclaw_rl.judge.transcript import words_of
from openclaw_rl.model import TurnKind
from openclaw_rl.store import Store

KEYS = ("bench", "alice", "bob")
"""Each is a tenant; requests without a key of their own have the first."""
CONTEXT_LENGTH = 200_000
"""In tokens, here bytes: nothing is too long."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One request: what is right about it, and what the gateway made of it."""

    conversation: Conversation
    step: Step
    label: Label
    kind: str
    session: str
    kind_reason: str
    next: tuple[str, ...] | None
    """The newest next state of its reply, if that may train: the words of each message."""


class UnexpectedAnswerError(RuntimeError):
    """The server refused a request of the bench, or its reply is not the one in the script."""


def observe(conversations: Sequence[Conversation]) -> list[Observed]:
    """Run all conversations on a server of our own. Raises UnexpectedAnswerError."""
    with _own_server() as (client, store, engine):
        posted = list(_post_all(conversations, client, engine))
        return [_read(store, *one) for one in posted]


def _post_all(
    conversations: Sequence[Conversation], client: httpx2.Client, engine: ScriptedEngine
) -> Iterator[tuple[Conversation, Step, Label, str]]:
    """A request of each conversation in turn, until all are at their end; gives the id of each turn."""
    players = [Player(conversation) for conversation in conversations]
    for position in range(max(len(conversation.steps) for conversation in conversations)):
        for conversation, player in zip(conversations, players, strict=True):
            if position < len(conversation.steps):
                step = conversation.steps[position]
                label, turn_id = _post(conversation, player, step, client, engine)
                yield conversation, step, label, turn_id


def _post(
    conversation: Conversation, player: Player, step: Step, client: httpx2.Client, engine: ScriptedEngine
) -> tuple[Label, str]:
    asked, label = player.post(step)
    made = CLIENTS[conversation.client](asked)
    engine.say(_sampled(step.reply))
    response = client.post(made.path, json=made.body, headers=made.headers)
    place = f"{conversation.name}, step {step.id}"
    if response.status_code != 200:
        raise UnexpectedAnswerError(f"{place}: {response.status_code} {response.text}")
    reply = reply_of(response, made.path)
    if _said(reply) != _said(step.reply):
        raise UnexpectedAnswerError(f"{place}: the reply is {reply}, not {step.reply}")
    player.settle(step, reply)
    return label, response.headers["X-Turn-Id"]


def _sampled(reply: Reply) -> str:
    """What the model writes for a reply."""
    thought = f"<think>{reply.thought}</think>" if reply.thought else ""
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
    written = [f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>" for call in calls]
    return thought + reply.text + "".join(written)


def _said(reply: Reply) -> tuple[str, str, list[tuple[str, str]]]:
    calls = [(call.name, json.dumps(call.arguments)) for call in reply.calls]
    return reply.text.strip(), reply.thought.strip(), calls


def _read(store: Store, conversation: Conversation, step: Step, label: Label, turn_id: str) -> Observed:
    turn = store.conversations.turn(turn_id)
    if turn is None:
        raise UnexpectedAnswerError(f"{conversation.name}, step {step.id}: its turn is not in the store")
    following = store.conversations.next_states(turn_id) if turn.kind is TurnKind.MAIN else []
    words = tuple(words_of(message).strip() for message in following[-1].messages) if following else None
    return Observed(conversation, step, label, turn.kind.value, turn.session_id, turn.kind_reason, words)


@contextmanager
def _own_server() -> Iterator[tuple[httpx2.Client, Store, ScriptedEngine]]:
    """A client of a server with a scripted engine and a store in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as folder:
        template = byte_template()
        engine = ScriptedEngine(template, CONTEXT_LENGTH)
        store = Store.open(Path(folder) / "store.sqlite")
        settings = Settings.model_validate(
            {"data_dir": folder, "model": {"name": "bench-model"}, "server": {"api_keys": KEYS}}
        )
        try:
            with (
                serving(create_app(settings, store, engine, template)) as url,
                httpx2.Client(
                    base_url=url, headers={"authorization": f"Bearer {KEYS[0]}"}, timeout=60
                ) as client,
            ):
                yield client, store, engine
        finally:
            store.close()
