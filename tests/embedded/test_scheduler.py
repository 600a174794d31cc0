"""Who gets the next step: chunked prefill beside decoding, rows that move, cancelling, order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from engine_runs import NEVER_STOP, PlainModel, prompt

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import Dice
from openclaw_rl.policy.embedded.scheduler import Running, Scheduler, Weights
from openclaw_rl.policy.engine import SampledToken


@dataclass
class Steps:
    """A scheduler stepped by hand, and what each request was given."""

    scheduler: Scheduler
    weights: Weights
    given: dict[Running, list[SampledToken]] = field(default_factory=dict)

    def ask(self, prompt_ids: tuple[int, ...], max_tokens: int) -> Running:
        running = Running(
            weights=self.weights,
            prompt_length=len(prompt_ids),
            token_ids=list(prompt_ids),
            sampling=Sampling(temperature=0, max_tokens=max_tokens),
            budget=max_tokens,
            deliver=lambda token: self.given[running].append(token),
            dice=Dice(0),
        )
        self.given[running] = []
        self.scheduler.waiting.append(running)
        return running

    def counts(self) -> list[int]:
        return [len(tokens) for tokens in self.given.values()]

    def finish(self) -> None:
        while self.scheduler.has_work:
            self.scheduler.step()

    def assert_greedy(self, running: Running, plain: PlainModel) -> None:
        token_ids = [token.token_id for token in self.given[running]]
        assert len(token_ids) == running.budget
        prompt_ids = tuple(running.token_ids[: running.prompt_length])
        assert token_ids == plain.greedy(prompt_ids, running.budget)


def steps_of(network: Network, max_concurrent: int = 8, prefill_chunk: int = 16) -> Steps:
    scheduler = Scheduler(
        NEVER_STOP, max_concurrent=max_concurrent, prefill_chunk=prefill_chunk, cache_tokens=0
    )
    return Steps(scheduler, Weights(0, network, None))


def test_a_long_prompt_stops_nobody_who_decodes(network: Network, plain: PlainModel) -> None:
    steps = steps_of(network)
    short = [steps.ask(prompt(length), 40) for length in (4, 5)]
    steps.scheduler.step()
    long = steps.ask(prompt(200), 5)
    while not steps.given[long]:
        before = [len(steps.given[running]) for running in short]
        computed = long.computed
        steps.scheduler.step()
        assert [len(steps.given[running]) for running in short] == [count + 1 for count in before]
        assert long.computed - computed <= 17  # a chunk, and the decoded token after the last
    assert steps.scheduler.counters.steps >= 200 // 16
    steps.finish()
    for running in [*short, long]:
        steps.assert_greedy(running, plain)


def test_replies_stay_right_when_a_sequence_in_the_middle_finishes(
    network: Network, plain: PlainModel
) -> None:
    steps = steps_of(network)
    lengths = [5, 1, 9, 3, 12, 2, 4]
    running = [steps.ask(prompt(10 + place), length) for place, length in enumerate(lengths)]
    moved = False
    while steps.scheduler.has_work:
        rows = {sequence: sequence.row for sequence in steps.scheduler.active}
        steps.scheduler.step()
        active = steps.scheduler.active
        assert [sequence.row for sequence in active] == list(range(len(active)))
        moved = moved or any(rows.get(sequence, sequence.row) != sequence.row for sequence in active)
    assert moved
    for sequence in running:
        steps.assert_greedy(sequence, plain)


def test_a_cancelled_sequence_frees_its_row_within_one_step(network: Network, plain: PlainModel) -> None:
    steps = steps_of(network, max_concurrent=2)
    first, second, waiting = (steps.ask(prompt(6 + place), 10) for place in range(3))
    steps.scheduler.step()
    assert steps.scheduler.active == [first, second]
    given = len(steps.given[first])
    steps.scheduler.cancel(first)
    steps.scheduler.step()
    assert set(steps.scheduler.active) == {second, waiting}
    steps.finish()
    assert len(steps.given[first]) == given
    for sequence in (second, waiting):
        steps.assert_greedy(sequence, plain)


def test_a_cancelled_prompt_is_not_computed_to_its_end(network: Network) -> None:
    steps = steps_of(network)
    long = steps.ask(prompt(300), 5)
    steps.scheduler.step()
    steps.scheduler.cancel(long)
    steps.scheduler.step()
    assert long.computed == 16
    assert not steps.scheduler.has_work


def test_a_cancelled_request_gives_its_waiting_place_back_at_once(network: Network) -> None:
    steps = steps_of(network, max_concurrent=1)
    first, second = (steps.ask(prompt(6), 10) for _ in range(2))
    steps.scheduler.step()
    steps.scheduler.cancel(second)
    assert steps.scheduler.unfinished == 1
    steps.scheduler.cancel(second)
    steps.finish()
    assert (len(steps.given[first]), len(steps.given[second])) == (10, 0)


def test_waiting_requests_are_admitted_in_order(network: Network) -> None:
    steps = steps_of(network, max_concurrent=2)
    running = [steps.ask(prompt(4), length) for length in (9, 2, 3, 2, 2)]
    begun: list[Running] = []
    while steps.scheduler.has_work:
        steps.scheduler.step()
        assert len(steps.scheduler.active) <= 2
        begun += [each for each in running if steps.given[each] and each not in begun]
    assert begun == running
    assert steps.scheduler.counters.peak_sequences == 2


def test_after_everyone_was_given_up_new_requests_are_served(network: Network, plain: PlainModel) -> None:
    steps = steps_of(network, max_concurrent=1)
    asked = [steps.ask(prompt(4), 5), steps.ask(prompt(5), 5)]
    steps.scheduler.step()
    assert steps.scheduler.fail_all() == asked
    assert not steps.scheduler.has_work
    again = steps.ask(prompt(4), 5)
    steps.finish()
    steps.assert_greedy(again, plain)


@pytest.mark.parametrize("chunk", [16, 17, 64])
def test_the_chunk_size_changes_no_token(network: Network, plain: PlainModel, chunk: int) -> None:
    steps = steps_of(network, prefill_chunk=chunk)
    for length in (15, 16, 17, 33, 65):
        steps.ask(prompt(length), 6)
    steps.finish()
    for running in steps.given:
        steps.assert_greedy(running, plain)
