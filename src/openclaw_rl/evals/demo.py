"""The demo: a simulated user talks to the real server until the first replies please.

Starts server and learner as the processes that `openclaw-rl up` starts, talks over HTTP as any client
would, and reads the store to show what was learned from which sentence. It trains nothing itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import httpx2

from openclaw_rl.config import EMBEDDED_MODEL
from openclaw_rl.evals import demo_screen, live
from openclaw_rl.evals.brief_user import BriefUser, answer_terms
from openclaw_rl.evals.client import ChatClient
from openclaw_rl.evals.demo_run import open_run
from openclaw_rl.evals.demo_screen import Screen
from openclaw_rl.evals.held_out import HINT, MAX_TOKENS, Evaluation, evaluate
from openclaw_rl.evals.plot import draw
from openclaw_rl.evals.results import write
from openclaw_rl.model import Message
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.processes.up import ChildRefusedError, Supervisor
from openclaw_rl.store import Store

CONVERSATIONS = 8
"""Held at the same time."""

ENOUGH_WAITING = 16
"""With so many turns waiting for an update, no conversation is begun: people are slower than this user."""

EVALUATE_EVERY = 4


class Demo:
    """One run, from start to table; interrupted, it leaves what `openclaw-rl up` goes on from."""

    def __init__(self, runs: Path, *, seed: int, updates: int, method: str, fresh: bool) -> None:
        self._run = open_run(runs, seed=seed, method=method, updates=updates, fresh=fresh)
        self._screen = Screen(self._run)
        self._paused = asyncio.Event()
        self._talked = 0
        self._begun = time.time()

    def run(self, json_file: Path | None) -> None:
        """Run to the end, print the results, and write the plots and the JSON."""
        started = time.monotonic() - self._run.seconds
        self._run.save()
        self._screen.log(f"everything of this run is kept in {self._run.folder}")
        model_files.resolve(EMBEDDED_MODEL, self._screen.log)  # fetched here, where its progress is seen
        # Lines that others write into the terminal would tear the panel.
        supervisor = Supervisor(self._flags(), self._screen.log, self._run.folder / "processes.log")
        try:
            with self._screen:
                asyncio.run(self._talk_and_measure(supervisor, started))
        except (httpx2.HTTPError, ExceptionGroup, TimeoutError, ChildRefusedError) as error:
            self._screen.log(f"stopped: {live.first(error)}; run the same command again to go on")
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            self._screen.log("\nstopped; nothing is lost. To go on talking to the model as it is now:")
            self._screen.log(f"  {self._command()}")
            raise SystemExit(130) from None
        finally:
            self._screen.log("stopping the server and the learner")
            supervisor.stop()
        self._report(json_file)

    def _flags(self) -> list[str]:
        """The settings of this run; all others are the product's defaults."""
        chosen: dict[str, object] = {
            "data_dir": self._run.folder,
            "server.port": 0,
            "learn.method": self._run.method,
            "learn.seed": self._run.seed,
        }
        return live.set_flags(chosen)

    def _command(self) -> str:
        # As it was called: the virtual environment that holds it need not be on the PATH.
        called = sys.argv[0] if Path(sys.argv[0]).name == "openclaw-rl" else "openclaw-rl"
        return f"{called} up --data-dir {self._run.folder}"

    async def _talk_and_measure(self, supervisor: Supervisor, started: float) -> None:
        tending = asyncio.create_task(live.tend(supervisor))
        try:
            store = Store.open(self._run.folder / "store.sqlite")
            watching = asyncio.create_task(self._watch(store))
            client = ChatClient(await live.server_url(store, self._begun))
            user = BriefUser(1000 * self._run.seed + store.learning.newest_good_version().number)
            await self._until_learned(store, client, user, started)
            watching.cancel()
            await client.close()
        finally:
            tending.cancel()
            self._run.seconds = time.monotonic() - started
            self._run.save()

    async def _until_learned(self, store: Store, client: ChatClient, user: BriefUser, started: float) -> None:
        await self._measure(client, version=0)
        if self._run.ceiling is None:
            self._screen.now.doing = "measuring the hinted teacher"
            self._run.ceiling = await self._evaluate(client, 0, hinted=True)
            self._run.save()
        talking = asyncio.create_task(self._keep_talking(store, client, user))
        try:
            while not self._run.complete:
                await asyncio.sleep(0.3)
                if talking.done():
                    talking.result()
                version = store.learning.newest_good_version().number
                due = [
                    number
                    for number in range(EVALUATE_EVERY, self._run.updates, EVALUATE_EVERY)
                    if number <= version and not self._run.evaluated(number)
                ]
                if version >= self._run.updates:
                    due.append(self._run.updates)
                for number in due:
                    self._paused.set()
                    await self._measure(client, version=number)
                    self._run.seconds = time.monotonic() - started
                    self._run.save()
                    self._paused.clear()
        finally:
            talking.cancel()

    async def _measure(self, client: ChatClient, *, version: int) -> None:
        if self._run.evaluated(version):
            return
        self._screen.now.doing = f"measuring version {version} on held-out questions"
        result = await self._evaluate(client, version)
        self._run.evaluations.append(result)
        self._run.evaluations.sort(key=lambda one: one.version)
        self._screen.now.score = result.score
        self._screen.log(
            f"version {version}: {result.score:.2f} of held-out first replies please "
            f"(style {result.style:.2f}, useful {result.useful:.2f})"
        )
        self._run.save()

    async def _evaluate(self, client: ChatClient, version: int, *, hinted: bool = False) -> Evaluation:
        return await evaluate(
            client,
            answer_terms("held_out"),
            model=EMBEDDED_MODEL,
            version=version,
            run=f"held-out-{self._run.folder.name}",
            hint=HINT if hinted else "",
        )

    async def _keep_talking(self, store: Store, client: ChatClient, user: BriefUser) -> None:
        """Several conversations at a time, one after another, until cancelled."""

        async def converse_on() -> None:
            while True:
                if self._paused.is_set() or not store.progress.next_update(ENOUGH_WAITING).missing:
                    await asyncio.sleep(0.2)
                else:
                    self._screen.now.doing = "talking"
                    await self._converse(client, user)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONVERSATIONS):
                group.create_task(converse_on())

    async def _converse(self, client: ChatClient, user: BriefUser) -> None:
        """A question, the reply, and what the user has to say to it."""
        self._talked += 1
        session = f"demo-{self._run.seed}-{time.time_ns()}-{self._talked}"
        question = user.next_question()
        messages: list[Message] = [{"role": "user", "content": question}]
        first = await client.ask(EMBEDDED_MODEL, messages, session=session, max_tokens=MAX_TOKENS)
        reaction = user.react(question, first.text, finished=first.finished)
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": reaction.words},
        ]
        # The user reads the second reply and leaves, so it needs not be long and is never judged.
        await client.ask(EMBEDDED_MODEL, messages, session=session, max_tokens=24, last=True)

    async def _watch(self, store: Store) -> None:
        """Copy what the processes say into the panel, and tell of each update."""
        told = last.id if (last := store.learning.last_update()) else 0
        tokens, at = 0, time.monotonic()
        now = self._screen.now
        while True:
            reports = store.reports()
            if server := reports.get("server"):
                now.version = int(server.detail.get("version", 0))
                drawn, moment = int(server.detail.get("tokens_generated", 0)), time.monotonic()
                if moment - at >= 2:
                    now.tokens_per_second, tokens, at = max(0, drawn - tokens) / (moment - at), drawn, moment
            if learner := reports.get("learner"):
                now.collected = int(learner.detail.get("collected", now.needed))
                updating = learner.phase == "updating"
                now.learner = f"update {learner.detail['update']} is running" if updating else learner.phase
            last = store.learning.last_update()
            if last is not None and last.id > told:
                told, now.update = last.id, last.id
                self._tell(store, last.id)
            await asyncio.sleep(0.5)

    def _tell(self, store: Store, update_id: int) -> None:
        """What an update was made of, and one sentence that it learned from."""
        update = store.learning.update(update_id)
        if update is None:
            return
        samples = [sample for turn_id in update.turn_ids if (sample := store.learning.sample(turn_id))]
        pleased = sum(sample.reward > 0 for sample in samples)
        self._screen.log(
            f"update {update.id}: {len(samples)} turns, {pleased} pleased, "
            f"{sum(sample.hint is not None for sample in samples)} with a hint, "
            f"{update.finished_at - update.started_at:.0f} s -> version {update.version}"
        )
        for sample in samples:
            if sample.hint:
                said = str(sample.next_state.messages[-1]["content"])
                self._screen.now.lessons.append(f"learned “{sample.hint}” from “{said}”")
        if samples and self._screen.now.lessons:
            self._screen.log(f"  {self._screen.now.lessons[-1]}")

    def _report(self, json_file: Path | None) -> None:
        run, log = self._run, self._screen.log
        if run.ceiling is None or not run.complete:
            return
        self._screen.console.print(demo_screen.score_table(run.evaluations, run.ceiling))
        for question, before, after in demo_screen.reply_pairs(run.evaluations[0], run.evaluations[-1]):
            log(f"\n{question}\n  before: {before}\n  after:  {after}")
        for suffix in ("png", "svg"):
            draw(run.evaluations, run.ceiling, run.folder / f"score.{suffix}")
        log(f"\n{run.seconds:.0f} s; plot: {run.folder / 'score.png'}")
        log(f"Go on talking to the trained model, which goes on learning:\n  {self._command()}")
        if json_file is not None:
            write(json_file, run.results(EMBEDDED_MODEL))
