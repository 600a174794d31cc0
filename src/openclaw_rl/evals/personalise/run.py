"""One run: a persona talks to the real server until so many updates are made; what came of it is measured.

Starts the processes that `openclaw-rl up` starts, in a folder that is gone afterwards. Trains nothing itself.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.config import EMBEDDED_MODEL, Settings
from openclaw_rl.evals import live, provenance
from openclaw_rl.evals.client import ChatClient
from openclaw_rl.evals.held_out import MAX_TOKENS, Evaluation, evaluate
from openclaw_rl.evals.personalise import judged
from openclaw_rl.evals.personalise.conversations import Conversations, sessions_until_pleased
from openclaw_rl.evals.personalise.frozen import UNRELATED, Frozen
from openclaw_rl.evals.personalise.memory import Memory
from openclaw_rl.evals.personalise.methods import Method
from openclaw_rl.evals.personalise.personas import Persona
from openclaw_rl.evals.personalise.questions import Terms
from openclaw_rl.evals.personalise.run_file import Measurement, RunFile
from openclaw_rl.evals.personalise.user import User
from openclaw_rl.processes.up import Supervisor
from openclaw_rl.store import Store

CONVERSATIONS = 16
"""Held at the same time."""

WIDTH = 32
"""Requests that the engine decodes together; more of them make an evaluation cheaper."""

PATIENCE_SECONDS = 3600.0
"""Runs take hours beside other work, and a run that gives up is lost."""

UNRELATED_TOKENS = 48

EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do."""

    persona: Persona
    method: Method
    seed: int
    measure_at: tuple[int, ...]
    """Updates, ascending; the last one ends the run. 0 is measured by the method `base` alone."""
    train: Terms
    held_out: Terms
    model: str = EMBEDDED_MODEL
    """As `model.name` takes it."""
    batch: int = 16
    """Turns of one update: the product's default. With so many waiting for one, nothing is said: people
    are slower than this user."""
    max_tokens: int = MAX_TOKENS
    """Of a reply; a longer one is cut off, and does not please."""
    settings: dict[str, object] = field(default_factory=dict)
    """Of the processes, over those of the method."""

    @property
    def served(self) -> str:
        """What clients call the model."""
        return Settings.model_validate({"model": {"name": self.model}}).served_name


@dataclass(slots=True)
class Progress:
    """What a running run tells whoever watches."""

    doing: str = "starting"
    updates: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class _Replies:
    """Kept between an evaluation and the forward passes that are made when the processes have ended."""

    held_out: Evaluation
    unrelated: tuple[str, ...]
    turns: int
    seconds: float


class Run:
    """From start to file."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress, say: Callable[[str], None]) -> None:
        """`folder` is the run's own, and emptied first."""
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._say = say
        self._begun = time.time()
        self._may_talk = asyncio.Event()
        self._found: dict[int, _Replies] = {}

    def run(self) -> RunFile:
        """Raises what the server, the processes or the user's HTTP raise; then nothing is kept."""
        plan, commit = self._plan, provenance.commit()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        chosen: dict[str, object] = {
            "learn.seed": plan.seed,
            "learn.batch_size": plan.batch,
            "learn.keep_versions": 0,  # their drift is measured at the end
            "engine.max_concurrent": WIDTH,
            **plan.method.settings,
            **plan.settings,
        }
        flags = live.set_flags(
            {"data_dir": self._folder, "server.port": 0, "model.name": plan.model, **chosen}
        )
        supervisor = Supervisor(flags, self._say, self._folder / "processes.log")
        try:
            talk = asyncio.run(self._talk_and_measure(supervisor))
        finally:
            supervisor.stop()
        seconds = time.time() - self._begun
        self._progress.doing = "forward passes"
        result = RunFile(
            persona=plan.persona.name,
            method=plan.method.name,
            seed=plan.seed,
            measurements=self._measurements(),
            first_replies=talk.first_replies,
            sessions=sessions_until_pleased(talk.first_replies),
            turns=talk.turns,
            seconds=round(seconds, 1),
            moods=dict(talk.moods),
            judged=self._judged(talk.said),
            settings={name: value for name, value in chosen.items() if isinstance(value, (str, int, float))},
            provenance={"commit": commit, "model": plan.model, **provenance.machine()},
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        return result

    async def _talk_and_measure(self, supervisor: Supervisor) -> Conversations:
        tending = asyncio.create_task(live.tend(supervisor))
        store = Store.open(self._folder / "store.sqlite")
        try:
            serving = asyncio.create_task(live.server_url(store, self._begun))
            await asyncio.wait((tending, serving), return_when=asyncio.FIRST_COMPLETED)
            if tending.done():
                tending.result()
            client = ChatClient(await serving, PATIENCE_SECONDS)
            memory = Memory() if self._plan.method.remembers else None
            user = User(self._plan.persona, self._plan.train, 1000 + self._plan.seed)
            talk = Conversations(
                client, self._plan.served, user, memory, self._plan.max_tokens, self._may_talk
            )
            if self._plan.method.talks:
                await self._until_learned(store, client, talk, memory, tending)
            else:
                await self._measure(client, 0, 0, talk, "")
            await client.close()
            return talk
        finally:
            tending.cancel()
            store.close()

    async def _until_learned(
        self,
        store: Store,
        client: ChatClient,
        talk: Conversations,
        memory: Memory | None,
        tending: asyncio.Task[None],
    ) -> None:
        talking = asyncio.create_task(self._keep_talking(talk))
        try:
            for due in self._plan.measure_at:
                while (done := self._updates(store, talk)) < due:
                    self._progress.doing = "talking"
                    self._progress.updates, self._progress.turns = done, talk.turns
                    self._let_talk(store)
                    for task in (talking, tending):
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.2)
                self._may_talk.clear()
                version = due if self._plan.method.learns else 0
                await self._measure(client, due, version, talk, memory.system_prompt if memory else "")
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)

    def _let_talk(self, store: Store) -> None:
        """Unless a whole batch waits for its update."""
        enough = self._plan.method.learns and not store.progress.next_update(self._plan.batch).missing
        if enough:
            self._may_talk.clear()
        else:
            self._may_talk.set()

    def _updates(self, store: Store, talk: Conversations) -> int:
        """Made so far; for who only remembers, as many as its turns would have made."""
        if self._plan.method.learns:
            return store.learning.newest_good_version().number
        return talk.turns // self._plan.batch

    async def _keep_talking(self, talk: Conversations) -> None:
        """Several conversations at a time, one after another, until cancelled."""

        async def converse_on() -> None:
            while True:
                await talk.converse()

        async with asyncio.TaskGroup() as group:
            for _ in range(CONVERSATIONS):
                group.create_task(converse_on())

    async def _measure(
        self, client: ChatClient, updates: int, version: int, talk: Conversations, notes: str
    ) -> None:
        plan = self._plan
        self._progress.doing = f"measuring after update {updates}"
        turns, seconds = talk.turns, time.time() - self._begun
        held_out = await evaluate(
            client,
            plan.held_out,
            model=plan.served,
            version=version,
            run=f"measure-{updates}",
            system=notes,
            style=plan.persona.style_fault,
            max_tokens=plan.max_tokens,
            hint=plan.persona.hint if plan.method.told else "",
        )
        unrelated = await asyncio.gather(
            *(
                client.ask(
                    f"{plan.served}@{version}",
                    [{"role": "user", "content": prompt}],
                    session=f"unrelated-{updates}-{place}",
                    max_tokens=min(UNRELATED_TOKENS, plan.max_tokens),
                    temperature=0,
                    last=True,
                )
                for place, prompt in enumerate(UNRELATED)
            )
        )
        texts = tuple(reply.text for reply in unrelated)
        self._found[updates] = _Replies(held_out, texts, turns, seconds)
        self._say(
            f"{plan.persona.name} {plan.method.name} seed {plan.seed}, {updates} updates: "
            f"{held_out.score:.2f} (style {held_out.style:.2f}, useful {held_out.useful:.2f}), "
            f"{turns} turns, {seconds:.0f} s"
        )

    def _judged(self, said: dict[str, str]) -> dict[str, dict[str, int]]:
        store = Store.open(self._folder / "store.sqlite")
        try:
            return judged.count(store, said)
        finally:
            store.close()

    def _measurements(self) -> tuple[Measurement, ...]:
        frozen, plan = Frozen(self._plan.model, self._say), self._plan
        made = []
        for updates, found in self._found.items():
            replies = found.held_out.replies
            version = self._folder / "versions" / f"{updates:06d}" if plan.method.learns and updates else None
            made.append(
                Measurement(
                    updates=updates,
                    pleases="".join(
                        {(False, False): "1", (True, False): "s", (False, True): "u", (True, True): "b"}[
                            bool(one.style_fault), bool(one.useful_fault)
                        ]
                        for one in replies
                    ),
                    turns=found.turns,
                    seconds=round(found.seconds, 1),
                    hinted_log_prob=round(
                        frozen.log_prob(
                            [one.question for one in replies],
                            [one.reply for one in replies],
                            plan.persona.hint,
                        ),
                        4,
                    ),
                    drift=round(frozen.drift(version, UNRELATED, found.unrelated), 4),
                    words=round(sum(len(one.reply.split()) for one in replies) / len(replies), 1),
                    examples=tuple(f"{one.question} -> {one.reply}" for one in replies[:EXAMPLES]),
                )
            )
        return tuple(made)
