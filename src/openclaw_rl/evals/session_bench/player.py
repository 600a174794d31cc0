"""Plays a conversation as its client would: keeps the histories, makes each request, and resolves its labels.

A step becomes a request with `post`; what the server answered goes into the history with `settle`. What a
request looks like on the wire is the business of `clients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from openclaw_rl.evals.session_bench.script import NONE, Call, Conversation, Label, Reply, Step

NO_REPLY, NO_CALL = Reply(), Call("", {})

Role = Literal["user", "assistant", "tool", "summary"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in a client's history, in words that belong to no protocol."""

    role: Role
    text: str
    step: str
    """That brought it, or whose reply it is."""
    minute: int
    """On the client's clock, since the conversation began."""
    reply: Reply = NO_REPLY
    """The policy's, where the role is assistant."""
    call: Call = NO_CALL
    """The one that a tool's result is of."""
    side: str = ""
    """The sort of helper request that it comes from."""


@dataclass(slots=True)
class Thread:
    """One history, as the client keeps it."""

    name: str
    session: str
    entries: list[Entry] = field(default_factory=list)
    epoch: int = 0
    """How often the history was started anew or compacted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a client needs to write one request."""

    conversation: str
    thread: str
    epoch: int
    step: Step
    entries: tuple[Entry, ...]
    options: dict[str, Any]
    minute: int

    @property
    def last_reply(self) -> Reply:
        return _newest_reply(self.entries)


class Player:
    """The state of one conversation between its requests."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._threads: dict[str, Thread] = {}
        self._before: dict[str, tuple[Entry, ...]] = {}
        self._sent: dict[str, tuple[Entry, ...]] = {}
        self._after: dict[str, tuple[Entry, ...]] = {}
        self._last: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._answered: set[str] = set()
        self._minute = 0

    def post(self, step: Step) -> tuple[Asked, Label]:
        """The request of `step`, with the history that its client has by then, and its labels."""
        thread = self._thread(step)
        self._minute += 1
        entries = self._history(thread, step)
        self._before[step.id] = tuple(entries)
        label = self._label(thread, step, entries)
        entries += self._added(step, entries)
        self._sent[step.id] = tuple(entries)
        if not step.side:
            self._last[thread.name] = step.id
        thread.entries = entries
        asked = Asked(
            self._conversation.name,
            thread.name,
            thread.epoch,
            step,
            tuple(entries),
            self._conversation.options | self._conversation.threads.get(thread.name, {}) | step.options,
            self._minute,
        )
        return asked, label

    def settle(self, step: Step, reply: Reply) -> None:
        """The answer to `step` has come: what the client keeps of it."""
        thread = self._threads[step.thread]
        answer = Entry("assistant", reply.text, step.id, self._minute, reply, side=step.side)
        self._after[step.id] = (*self._sent[step.id], answer)
        if step.side and not step.keep:
            thread.entries = list(self._before[step.id])
        elif not step.lost:
            thread.entries = list(self._after[step.id])

    def _thread(self, step: Step) -> Thread:
        thread = self._threads.setdefault(step.thread, Thread(step.thread, step.thread))
        if step.of and not thread.entries:
            thread.entries = list(self._threads[step.of].entries)
        thread.session = step.session or thread.session
        return thread

    def _history(self, thread: Thread, step: Step) -> list[Entry]:
        """What the client still has, before this step adds to it."""
        entries = list(thread.entries)
        if step.again:
            entries = list(self._sent[self._last[thread.name]])
        if step.back_to:
            entries = list(self._before[step.back_to])
        if step.after:
            entries = list(self._after[step.after])
        if step.fresh:
            entries = []
        if step.summary:
            kept = entries[-step.tail :] if step.tail else []
            entries = [Entry("summary", step.summary, step.id, self._minute), *kept]
        if step.fresh or step.summary:
            thread.epoch += 1
        return entries[-step.window :] if step.window else entries

    def _added(self, step: Step, entries: list[Entry]) -> list[Entry]:
        calls = _newest_reply(entries).calls
        if len(step.results) > len(calls):
            raise ValueError(f"{self._conversation.name}, step {step.id}: more results than calls")
        results = [
            Entry("tool", text, step.id, self._minute, call=call, side=step.side)
            for text, call in zip(step.results, calls, strict=False)
        ]
        said = [Entry("user", text, step.id, self._minute, side=step.side) for text in step.user]
        if step.side and not said and not results:
            said = [Entry("user", "", step.id, self._minute, side=step.side)]
        return results + said

    def _label(self, thread: Thread, step: Step, entries: list[Entry]) -> Label:
        """The labels of the script; else the ordinary ones: what is added follows the newest reply."""
        kind = step.kind or ("side" if step.side else "main")
        self._kinds[step.id] = kind
        answers: str | None = step.answers or None
        if answers is None and kind == "main" and not step.back_to:
            newest = next((entry.step for entry in reversed(entries) if entry.role == "assistant"), None)
            added = step.user or step.results
            if newest and added and self._kinds[newest] == "main" and newest not in self._answered:
                answers = newest
        if answers is None or answers == NONE:
            return Label(kind, thread.session, None, ())
        if answers in self._answered or self._kinds[answers] == "side":
            raise ValueError(f"{self._conversation.name}, step {step.id}: {answers} cannot be answered")
        self._answered.add(answers)
        texts = step.results + step.user if step.next is None else step.next
        return Label(kind, thread.session, answers, texts)


def _newest_reply(entries: Sequence[Entry]) -> Reply:
    return next((entry.reply for entry in reversed(entries) if entry.role == "assistant"), NO_REPLY)


def labels(conversation: Conversation) -> dict[str, Label]:
    """The labels of each step by its id, with the replies as they are written in the script."""
    player, found = Player(conversation), {}
    for step in conversation.steps:
        _, found[step.id] = player.post(step)
        calls = tuple(replace(call, id=f"call_{step.id}_{n}") for n, call in enumerate(step.reply.calls))
        player.settle(step, replace(step.reply, calls=calls))
    return found
