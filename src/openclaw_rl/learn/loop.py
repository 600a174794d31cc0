"""The learning loop: wait for a full batch, take one step, record it, say what happened.

A batch is the oldest waiting samples that are fit to train on. Nothing is half done: the version is on
disk before the store's one transaction makes it real, and a killed learner resumes from the store.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

from openclaw_rl.config import LearnSettings
from openclaw_rl.learn import checkpoint
from openclaw_rl.learn.heap import kept_until_done
from openclaw_rl.learn.retention import delete_old
from openclaw_rl.learn.trainer import NotFiniteError, Trainer
from openclaw_rl.model import PolicyVersion, Sample, Update, VersionState
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.store import ConflictError, Store

REPORT = "learner"
"""The name under which this loop reports to the store."""

log = logging.getLogger(__name__)


class Learner:
    """Trains one policy from one store."""

    def __init__(
        self,
        store: Store,
        trainer: Trainer,
        settings: LearnSettings,
        *,
        model: str,
        model_folder: Path,
        versions: Path,
        cores: CoreShare,
    ) -> None:
        """`model` is the served name that a turn must carry to be trained on."""
        self._store = store
        self._trainer = trainer
        self._settings = settings
        self._model = model
        self._model_folder = model_folder
        self._versions = versions
        self._cores = cores
        self._initial = {name: value.detach().clone() for name, value in trainer.parameters.items()}
        self._current = 0
        self._reported: tuple[str, int] | None = None
        self._too_few: int | None = None

    def run(self, stop: threading.Event, interval: float = 0.2) -> None:
        """Learn until `stop` is set; an update that has begun is finished first.

        Raises ConfigError when the newest version was trained with other settings, OSError when it cannot
        be read.
        """
        self._follow_store()
        while not stop.is_set():
            if not self.learn_once():
                stop.wait(interval)
        self._store.report(REPORT, "stopped")

    def learn_once(self) -> bool:
        """Take one update if a batch is waiting; says whether it did."""
        needed = self._settings.batch_size
        waiting = self._store.progress.next_update(needed).collected
        if waiting == self._too_few:
            return False  # what waits was looked at already
        started = time.time()
        batch = self._next_batch()
        if len(batch) < needed:
            self._too_few = len(batch)
            self._say("waiting", collected=len(batch), needed=needed)
            return False
        self._too_few = None
        self._follow_store()
        update_id, number = self._store.learning.next_numbers()
        self._say("updating", update=update_id, version=number)
        try:
            with self._cores.working(), kept_until_done():
                metrics = self._trainer.step(batch, updates_before=self._current)
        except NotFiniteError:
            # The same batch would fail again; its samples are kept, and said to be unfit.
            log.exception("update %d was not taken", update_id)
            for sample in batch:
                self._store.learning.set_aside(
                    sample.turn.id, "its batch gave a loss or gradient that is not finite"
                )
            return True
        self._record(batch, metrics, update_id, number, started)
        return True

    def _next_batch(self) -> list[Sample]:
        """The oldest fit samples, at most a batch of them; unfit ones met on the way are set aside."""
        newest = self._store.learning.newest_good_version().number
        while True:
            samples = self._store.learning.waiting_samples(self._settings.batch_size)
            unfit = [(sample, why) for sample in samples if (why := self._unfit(sample, newest))]
            if not unfit:
                return self._with_earlier_hints(samples)
            for sample, why in unfit:
                self._store.learning.set_aside(sample.turn.id, why)

    def _with_earlier_hints(self, samples: list[Sample]) -> list[Sample]:
        """The samples as the trainer wants them: earlier hints cost a search each and are rarely wanted."""
        if self._settings.without_hint != "earlier_hint":
            return samples
        return [replace(sample, earlier_hint=self._store.learning.earlier_hint(sample)) for sample in samples]

    def _unfit(self, sample: Sample, newest: int) -> str:
        """Why a sample must not be trained on; "" when it may."""
        turn, settings = sample.turn, self._settings
        if turn.model != self._model:
            return f"sampled by {turn.model}, not by {self._model}"
        if newest - turn.policy_version > settings.max_staleness:
            return f"sampled more than {settings.max_staleness} versions ago"
        if not turn.response_ids:
            return "no tokens were sampled"
        if len(turn.prompt_ids) + len(turn.response_ids) > settings.max_sample_tokens:
            return f"longer than {settings.max_sample_tokens} tokens"
        if not all(math.isfinite(logprob) for logprob in turn.logprobs):
            return "a recorded log-prob is not finite"
        if settings.method == "binary" and not sample.reward:
            return "no score, and the method learns from scores alone"
        if settings.method in ("opd", "opd_top_k") and not sample.hint:
            return "no hint, and the method learns from hints alone"
        if settings.method == "sft" and sample.reward <= 0:
            return "not accepted, and the method learns from accepted replies alone"
        return ""

    def _follow_store(self) -> None:
        """Train on from the newest good version, which is ours unless it was rejected or rolled back."""
        version = self._store.learning.newest_good_version()
        if version.number == self._current:
            return
        if version.path is None:
            checkpoint.reset(self._trainer, self._initial)
        else:
            checkpoint.restore(self._trainer, self._versions.parent / version.path, self._model)
        self._current = version.number

    def _record(
        self, batch: list[Sample], metrics: dict[str, float], update_id: int, number: int, started: float
    ) -> None:
        parent = self._current
        folder, digest = checkpoint.save(
            self._trainer, self._model_folder, self._model, self._versions, number
        )
        metrics["mean_staleness"] = sum(parent - s.turn.policy_version for s in batch) / len(batch)
        path = str(folder.relative_to(self._versions.parent))  # so that the data folder may be moved
        now = time.time()
        done = Update(
            id=update_id,
            version=number,
            method=self._settings.method,
            turn_ids=tuple(sample.turn.id for sample in batch),
            metrics=metrics,
            started_at=started,
            finished_at=now,
        )
        version = PolicyVersion(
            number, parent, VersionState.CANDIDATE, path, digest, now, update_id=update_id
        )
        try:
            self._store.learning.record_update(done, version)
        except ConflictError as error:
            log.warning("%s; the step is discarded", error)
            self._current = -1  # the weights in memory belong to no version
            return
        self._current = number
        log.info("update %d made version %d in %.1f s", update_id, number, now - started)
        if self._settings.keep_versions:
            delete_old(self._store, self._versions, self._settings.keep_versions)

    def _say(self, phase: str, **detail: int) -> None:
        said = (phase, detail.get("collected", detail.get("update", 0)))
        if said != self._reported:
            self._store.report(REPORT, phase, method=self._settings.method, **detail)
            self._reported = said
