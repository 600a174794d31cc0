"""The loop against a real store: which samples make an update, and from which weights it starts."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from judged_samples import HINT, a_trainer, put, same, weights_of
from learnable_model import MODEL, sample_turn

from openclaw_rl.config import ConfigError, LearnSettings
from openclaw_rl.learn import checkpoint
from openclaw_rl.learn.loop import REPORT, Learner
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.model import PolicyVersion, Score, Turn, TurnState, Update, VersionState
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.store import Store, new_id


@dataclass
class Ground:
    """A store, a model, and learners made for both."""

    store: Store
    network: Network
    template: ChatTemplate
    model_folder: Path
    home: Path
    cores: CoreShare
    drawn: tuple[Turn, ...]
    """Turns on different prompts, of which the samples are copies, one after the other."""
    clock: float = 100.0
    during_step: Callable[[], None] = lambda: None
    """Called when an update is being computed, before its first pass."""

    def trainer(self, settings: LearnSettings) -> Trainer:
        return Trainer(self.network, self.template, settings, before_pass=lambda: self.during_step())

    def learner(self, batch_size: int = 2, **settings: Any) -> Learner:
        chosen = LearnSettings(
            **{"method": "combined", "lora_rank": 4, "lora_alpha": 8, "batch_size": batch_size, **settings}
        )
        return Learner(
            self.store,
            self.trainer(chosen),
            chosen,
            model=MODEL,
            model_folder=self.model_folder,
            versions=self.home / "versions",
            cores=self.cores,
        )

    def add(self, score: Score | None = 1, hint: str | None = None, **changes: Any) -> Turn:
        """One more waiting sample, newer than all before unless it says otherwise."""
        self.clock += 1
        fields = {"id": new_id("turn"), "finished_at": self.clock, **changes}
        return put(self.store, replace(self.drawn[int(self.clock) % len(self.drawn)], **fields), score, hint)

    def fill(self, count: int = 2, **changes: Any) -> list[Turn]:
        return [self.add(**changes) for _ in range(count)]

    def state(self, turn: Turn) -> tuple[TurnState, str]:
        found = self.store.conversations.turn(turn.id)
        assert found is not None
        return found.state, found.state_reason

    def states(self, turns: list[Turn]) -> list[TurnState]:
        return [self.state(turn)[0] for turn in turns]

    def version(self, number: int) -> PolicyVersion:
        found = self.store.learning.version(number)
        assert found is not None
        return found

    def folders(self) -> list[str]:
        """Of the versions that have files."""
        return sorted(folder.name for folder in (self.home / "versions").iterdir())

    def weights(self, number: int) -> dict[str, torch.Tensor]:
        """The weights that a recorded version has on disk."""
        path = self.version(number).path
        assert path is not None
        trainer = a_trainer(self.network, self.template)
        checkpoint.restore(trainer, self.home / path, MODEL)
        return weights_of(trainer)

    def step_from(self, parent: int, turns: list[Turn]) -> dict[str, torch.Tensor]:
        """What one step on these turns makes of a version, computed apart from any learner."""
        trainer = a_trainer(self.network, self.template)
        if path := self.version(parent).path:
            checkpoint.restore(trainer, self.home / path, MODEL)
        samples = [self.store.learning.sample(turn.id) for turn in turns]
        trainer.step([sample for sample in samples if sample is not None], updates_before=parent)
        return weights_of(trainer)


@pytest.fixture
def ground(
    store: Store, network: Network, template: ChatTemplate, model_folder: Path, tmp_path: Path
) -> Iterator[Ground]:
    cores = CoreShare(tmp_path / "home", "learner", 1)
    texts = ("Hello there", "Hi", "Who?", "Count to three.")
    drawn = tuple(sample_turn(network, template, text, max_tokens=6) for text in texts)
    yield Ground(store, network, template, model_folder, tmp_path / "home", cores, drawn)
    cores.close()


def test_fewer_samples_than_a_batch_make_no_update(ground: Ground) -> None:
    turns = ground.fill(3)
    learner = ground.learner(batch_size=4)
    assert learner.learn_once() is False
    assert ground.states(turns) == [TurnState.WAITING_UPDATE] * 3
    assert ground.store.learning.last_update() is None
    report = ground.store.reports()[REPORT]
    assert (report.phase, report.detail) == ("waiting", {"method": "combined", "collected": 3, "needed": 4})


def test_the_oldest_sixteen_make_one_update_and_the_rest_wait_on(ground: Ground) -> None:
    newest_first = [ground.add(finished_at=50.0 - place) for place in range(21)]
    oldest, newer = newest_first[-16:], newest_first[:5]
    learner = ground.learner(batch_size=16)
    assert learner.learn_once() is True
    assert learner.learn_once() is False
    assert ground.states(oldest) == [TurnState.TRAINED] * 16
    assert ground.states(newer) == [TurnState.WAITING_UPDATE] * 5
    update = ground.store.learning.last_update()
    assert update is not None
    assert (update.id, update.version, update.method) == (1, 1, "combined")
    assert set(update.turn_ids) == {turn.id for turn in oldest}
    assert update.metrics["samples"] == 16
    assert update.finished_at >= update.started_at
    version = ground.version(1)
    assert (version.parent, version.state, version.update_id) == (0, VersionState.CANDIDATE, 1)
    assert same(ground.weights(1), ground.step_from(0, oldest[::-1]))


def test_updates_follow_each_other(ground: Ground) -> None:
    turns = ground.fill(4)
    learner = ground.learner()
    assert learner.learn_once()
    first = ground.weights(1)
    assert learner.learn_once()
    assert ground.version(2).parent == 1
    assert ground.states(turns) == [TurnState.TRAINED] * 4
    assert not same(ground.weights(2), first)
    assert same(ground.weights(2), ground.step_from(1, turns[2:]))
    update = ground.store.learning.last_update()
    assert update is not None
    assert update.metrics["mean_staleness"] == 1.0  # sampled by version 0, trained from version 1


UNFIT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sampled by another, not by tiny", {"model": "another"}, {}),
    ("no tokens were sampled", {"response_ids": (), "logprobs": ()}, {}),
    ("longer than 64 tokens", {"prompt_ids": (7,) * 59}, {"max_sample_tokens": 64}),
    ("a recorded log-prob is not finite", {"logprobs": (-1.0, float("-inf")) * 3}, {}),
    ("no score, and the method learns from scores alone", {"score": 0, "hint": HINT}, {"method": "binary"}),
    ("no hint, and the method learns from hints alone", {}, {"method": "opd"}),
    (
        "not accepted, and the method learns from accepted replies alone",
        {"score": -1, "hint": HINT},
        {"method": "sft"},
    ),
]


@pytest.mark.parametrize(("reason", "changes", "settings"), UNFIT, ids=[reason for reason, *_ in UNFIT])
def test_an_unfit_sample_is_set_aside_with_its_reason_and_takes_no_place_in_a_batch(
    ground: Ground, reason: str, changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    fit: dict[str, Any] = {"score": 1, "hint": HINT}
    unfit = [ground.add(**changes) for _ in range(3)]
    first = ground.add(**fit)
    learner = ground.learner(**settings)
    assert learner.learn_once() is False
    assert {ground.state(turn) for turn in unfit} == {(TurnState.SET_ASIDE, reason)}
    assert ground.store.conversations.reasons() == [(TurnState.SET_ASIDE, reason, 3)]
    assert ground.store.reports()[REPORT].detail["collected"] == 1
    second = ground.add(**fit)
    assert learner.learn_once() is True
    assert ground.states([first, second]) == [TurnState.TRAINED] * 2


def test_a_sample_of_exactly_the_longest_length_is_trained(ground: Ground) -> None:
    turns = ground.fill(prompt_ids=(7,) * (64 - len(ground.drawn[0].response_ids)))
    assert ground.learner(max_sample_tokens=64).learn_once() is True
    assert ground.states(turns) == [TurnState.TRAINED] * 2


def test_a_sample_is_stale_when_more_versions_than_allowed_came_after_its_own(ground: Ground) -> None:
    learner = ground.learner(max_staleness=1)
    for number in (1, 2):
        ground.fill(policy_version=number - 1)
        assert learner.learn_once()
    stale, fresh = ground.fill(2, policy_version=0), ground.fill(2, policy_version=1)
    assert learner.learn_once() is True
    reason = "sampled more than 1 versions ago"
    assert [ground.state(turn) for turn in stale] == [(TurnState.SET_ASIDE, reason)] * 2
    assert ground.states(fresh) == [TurnState.TRAINED] * 2


def test_after_a_rejected_version_the_next_update_starts_from_its_parent(ground: Ground) -> None:
    learner = ground.learner()
    ground.fill()
    assert learner.learn_once()
    ground.fill(score=-1)
    assert learner.learn_once()
    ground.store.learning.mark_rejected(2, "log-probs are not finite")
    turns = ground.fill()
    assert learner.learn_once()
    assert ground.version(3).parent == 1
    assert same(ground.weights(3), ground.step_from(1, turns))


def test_after_a_rejected_first_version_training_starts_over(ground: Ground) -> None:
    learner = ground.learner()
    ground.fill(score=-1)
    assert learner.learn_once()
    ground.store.learning.mark_rejected(1, "log-probs are not finite")
    turns = ground.fill()
    assert learner.learn_once()
    assert ground.version(2).parent == 0
    assert same(ground.weights(2), ground.step_from(0, turns))


def once(act: Callable[[], None]) -> Callable[[], None]:
    left = [act]
    return lambda: left.pop()() if left else None


def test_a_sample_that_goes_back_to_the_judge_while_it_trains_undoes_the_update(ground: Ground) -> None:
    first, second = ground.fill()
    more = [{"role": "user", "content": "No, wait."}]

    def speak() -> None:
        ground.store.conversations.add_next_state(second.id, "conversation", more)

    ground.during_step = once(speak)
    learner = ground.learner()
    learner.learn_once()
    assert ground.store.learning.last_update() is None
    assert [version.number for version in ground.store.learning.versions()] == [0]
    assert ground.states([first, second]) == [TurnState.WAITING_UPDATE, TurnState.WAITING_JUDGE]
    third = ground.add(score=-1)
    assert learner.learn_once()
    assert ground.version(1).parent == 0
    assert same(ground.weights(1), ground.step_from(0, [first, third]))


def test_a_sample_that_another_process_trained_meanwhile_undoes_the_update(ground: Ground) -> None:
    first, second = ground.fill()

    def train_elsewhere() -> None:
        theirs = a_trainer(ground.network, ground.template)
        sample = ground.store.learning.sample(second.id)
        assert sample is not None
        theirs.step([sample])
        folder, digest = checkpoint.save(theirs, ground.model_folder, MODEL, ground.home / "theirs", 1)
        ground.store.learning.record_update(
            Update(1, 1, "combined", (second.id,), {}, time.time(), time.time() + 1),
            PolicyVersion(1, 0, VersionState.CANDIDATE, str(folder), digest, 2.0, update_id=1),
        )

    ground.during_step = once(train_elsewhere)
    learner = ground.learner()
    learner.learn_once()
    update = ground.store.learning.last_update()
    assert update is not None
    assert (update.id, update.turn_ids) == (1, (second.id,))
    assert ground.state(first)[0] is TurnState.WAITING_UPDATE
    third = ground.add(score=-1)
    assert learner.learn_once()
    assert ground.version(2).parent == 1
    assert same(ground.weights(2), ground.step_from(1, [first, third]))


def test_a_new_learner_resumes_from_the_newest_version(ground: Ground) -> None:
    ground.fill()
    assert ground.learner().learn_once()
    turns = ground.fill(score=-1)
    assert ground.learner().learn_once()
    assert ground.version(2).parent == 1
    assert same(ground.weights(2), ground.step_from(1, turns))


def test_what_a_killed_learner_left_on_disk_is_not_taken_for_a_version(ground: Ground) -> None:
    killed = a_trainer(ground.network, ground.template)
    checkpoint.save(killed, ground.model_folder, MODEL, ground.home / "versions", 1)
    turns = ground.fill()
    assert ground.learner().learn_once()
    assert ground.version(1).parent == 0
    assert same(ground.weights(1), ground.step_from(0, turns))


def test_a_batch_that_gives_no_finite_gradient_is_set_aside_and_training_goes_on(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    # Rewards of this weight overflow; hints are of ordinary size.
    learner = ground.learner(reward_weight=3e38)
    broken = ground.fill(score=-1)
    with caplog.at_level(logging.ERROR):
        assert learner.learn_once() is True
    assert "update 1 was not taken" in caplog.text
    reason = "its batch gave a loss or gradient that is not finite"
    assert [ground.state(turn) for turn in broken] == [(TurnState.SET_ASIDE, reason)] * 2
    assert ground.store.learning.last_update() is None
    turns = ground.fill(score=None, hint=HINT)
    assert learner.learn_once() is True
    assert same(ground.weights(1), ground.step_from(0, turns))


def test_the_loop_trains_what_arrives_until_it_is_stopped(ground: Ground) -> None:
    stop = threading.Event()
    looping = threading.Thread(target=ground.learner().run, args=(stop, 0.01))
    looping.start()
    try:
        turns = ground.fill()
        deadline = time.monotonic() + 20
        while ground.states(turns) != [TurnState.TRAINED] * 2:
            assert time.monotonic() < deadline, "no update was taken"
            time.sleep(0.01)
    finally:
        stop.set()
        looping.join()
    assert ground.store.reports()[REPORT].phase == "stopped"


def test_an_update_that_has_begun_is_finished_when_the_loop_is_stopped(ground: Ground) -> None:
    stop = threading.Event()
    turns = ground.fill(4)
    ground.during_step = stop.set
    ground.learner().run(stop)
    assert ground.states(turns) == [TurnState.TRAINED] * 2 + [TurnState.WAITING_UPDATE] * 2


def test_a_version_of_other_settings_is_refused_before_anything_waits(ground: Ground) -> None:
    ground.fill()
    assert ground.learner().learn_once()
    with pytest.raises(ConfigError, match=r"000001 was trained with other settings"):
        ground.learner(lora_rank=8).run(threading.Event())


def test_only_the_newest_versions_keep_their_files(ground: Ground) -> None:
    learner = ground.learner(keep_versions=2)
    for number in range(1, 6):
        ground.fill()
        assert learner.learn_once()
        if number != 2:  # the server never came to this one
            ground.store.learning.mark_serving(number)
    assert ground.folders() == ["000004", "000005"]
    states = [version.state for version in ground.store.learning.versions()]
    retired, deleted = VersionState.RETIRED, VersionState.DELETED
    assert states == [VersionState.SERVING, retired, deleted, deleted, deleted, retired]
    assert ground.version(1).sha256 is not None
    assert ground.store.learning.newest_good_version().number == 5


def test_a_version_that_serves_keeps_its_files_however_old(ground: Ground) -> None:
    learner = ground.learner(keep_versions=1)
    ground.fill()
    assert learner.learn_once()
    ground.store.learning.mark_serving(1)
    for _ in range(2):  # while the server is busy
        ground.fill()
        assert learner.learn_once()
    assert ground.folders() == ["000001", "000002", "000003"]
    ground.store.learning.mark_serving(3)
    ground.fill()
    assert learner.learn_once()
    assert ground.folders() == ["000003", "000004"]


def test_a_version_of_another_folder_is_never_deleted(ground: Ground) -> None:
    """The store of a copied data folder may name the files that it was copied from."""
    elsewhere = ground.home.parent / "original" / "versions" / "000001"
    elsewhere.mkdir(parents=True)
    ground.fill()
    learner = ground.learner(keep_versions=1)
    assert learner.learn_once()
    with sqlite3.connect(ground.home.parent / "store.sqlite") as store:
        store.execute("update versions set path = ? where number = 1", (str(elsewhere),))
    for number in (2, 3):
        ground.fill()
        assert learner.learn_once()
        ground.store.learning.mark_serving(number)
    ground.fill()
    assert learner.learn_once()
    assert elsewhere.exists()
    assert ground.version(2).state is VersionState.DELETED


def test_a_moved_folder_keeps_its_versions(ground: Ground) -> None:
    ground.fill()
    assert ground.learner().learn_once()
    assert ground.version(1).path == "versions/000001"


def test_a_rejected_version_takes_no_good_ones_place(ground: Ground) -> None:
    learner = ground.learner(keep_versions=2)
    for number in range(1, 5):
        ground.fill()
        assert learner.learn_once()
        if number == 3:
            ground.store.learning.mark_rejected(3, "worse")
        else:
            ground.store.learning.mark_serving(number)
    ground.fill()
    assert learner.learn_once()
    assert ground.folders() == ["000004", "000005"]


def test_zero_keeps_every_version(ground: Ground) -> None:
    learner = ground.learner(keep_versions=0, max_staleness=99)
    for number in range(1, 12):
        ground.fill()
        assert learner.learn_once()
        ground.store.learning.mark_serving(number)
    assert len(ground.folders()) == 11


def test_a_running_update_is_reported(ground: Ground) -> None:
    ground.fill()
    seen: list[tuple[str, dict[str, Any]]] = []

    def look() -> None:
        report = ground.store.reports()[REPORT]
        seen.append((report.phase, report.detail))

    ground.during_step = once(look)
    assert ground.learner().learn_once()
    assert seen == [("updating", {"method": "combined", "update": 1, "version": 1})]


def test_a_turn_without_a_hint_is_trained_with_the_earlier_one_where_that_is_set(ground: Ground) -> None:
    hints = []
    for without_hint in ("nothing", "earlier_hint"):
        ground.add(hint="Be shorter.")
        ground.add()
        learner = ground.learner(method="hybrid", without_hint=without_hint)
        samples = learner._next_batch()
        hints.append([sample.earlier_hint for sample in samples])
        assert learner.learn_once()
    assert hints == [[None, None], ["Be shorter.", "Be shorter."]]
