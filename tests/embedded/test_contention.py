"""How many threads are used beside other programs: on a machine played here, and beside real programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.policy.embedded.contention import (
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    WINDOW_SECONDS,
    Contention,
)
from openclaw_rl.policy.embedded.cores import available_cores

STEP = WINDOW_SECONDS / 4


class Machine:
    """Cores that are shared out evenly between our spinning threads and those of others."""

    def __init__(self, cores: int, others: int = 0) -> None:
        self.cores = cores
        self.others = others
        self.now = 100.0
        self.used = 7.0
        self.contention = Contention(lambda: self.now, lambda: self.used)

    def step(self, wanted: int) -> int:
        """One step of the engine; how many threads it had."""
        threads = self.contention.threads(wanted)
        share = min(1.0, self.cores / (threads + self.others))
        self.now += STEP
        self.used += STEP * threads * share
        return threads

    def steps(self, wanted: int, seconds: float) -> list[int]:
        return [self.step(wanted) for _ in range(round(seconds / STEP))]


def test_who_is_alone_keeps_all_threads() -> None:
    for cores in (1, 2, 16):
        assert set(Machine(cores).steps(cores, 30)) == {cores}


@pytest.mark.parametrize(
    ("cores", "others", "left"), [(2, 1, 1), (2, 4, 1), (4, 1, 3), (16, 2, 14), (1, 1, 1)]
)
def test_beside_others_only_the_threads_are_left_that_had_a_core(cores: int, others: int, left: int) -> None:
    machine = Machine(cores, others)
    machine.steps(cores, 2 * WINDOW_SECONDS)
    assert set(machine.steps(cores, FIRST_REST_SECONDS / 2)) == {left}


def test_all_threads_come_back_when_the_others_are_gone() -> None:
    machine = Machine(2, others=1)
    assert machine.steps(2, FIRST_REST_SECONDS)[-1] == 1
    machine.others = 0
    machine.steps(2, FIRST_REST_SECONDS)
    assert set(machine.steps(2, 30)) == {2}


def test_all_threads_are_tried_more_and_more_seldom() -> None:
    machine = Machine(2, others=1)
    tried = machine.steps(2, 300).count(2)
    assert 0 < tried <= 5 * (300 / LONGEST_REST_SECONDS + 5)
    machine.others = 0
    machine.steps(2, LONGEST_REST_SECONDS + 1)
    assert machine.step(2) == 2
    machine.others = 1
    machine.steps(2, 2 * WINDOW_SECONDS)
    machine.others = 0
    assert machine.steps(2, FIRST_REST_SECONDS + 2 * WINDOW_SECONDS)[-1] == 2  # as on the first day


def test_all_threads_are_not_tried_while_even_the_fewer_miss_their_cores() -> None:
    machine = Machine(2, others=4)
    machine.steps(2, 2 * WINDOW_SECONDS)
    assert set(machine.steps(2, 100)) == {1}


def test_a_pause_says_nothing_of_others() -> None:
    machine = Machine(2)
    for _ in range(50):
        machine.now += 3.0
        machine.contention.begin()
        assert set(machine.steps(2, WINDOW_SECONDS)) == {2}


def test_short_replies_make_a_window_together() -> None:
    """Each of them ends before anything can be concluded from it alone."""
    machine = Machine(2, others=1)

    def reply() -> int:
        machine.now += 0.5
        machine.contention.begin()
        threads = machine.step(2)
        machine.contention.end()
        return threads

    assert [reply() for _ in range(8)][-1] == 1
    machine.others = 0
    machine.now += LONGEST_REST_SECONDS
    assert [reply() for _ in range(8)][-1] == 2


def test_never_more_threads_than_wanted() -> None:
    machine = Machine(16, others=2)
    machine.steps(16, 1)
    assert set(machine.steps(8, 30)) == {8}
    assert machine.step(1) == 1
    machine.others = 0
    machine.steps(16, 2 * LONGEST_REST_SECONDS)
    assert machine.step(16) == 16


COMPUTE = """
import sys, time
from pathlib import Path
import torch
from openclaw_rl.policy.embedded.cores import CoreShare
share, numbers = CoreShare(Path(sys.argv[1]), "server"), torch.rand(512, 512)
for line in sys.stdin:
    seen, end = [], time.monotonic() + float(line)
    with share.working():
        while time.monotonic() < end:
            share.adjust()
            seen.append(torch.get_num_threads())
            for _ in range(10):
                numbers @ numbers
    print(min(seen), seen[-1], flush=True)
"""


@pytest.fixture
def computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that computes with its share of the cores for as long as it is told to."""
    for name in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", COMPUTE, str(tmp_path)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.communicate()


def compute(computing: subprocess.Popen[str], seconds: float) -> tuple[int, int]:
    """The fewest threads it used, and its last."""
    assert computing.stdin is not None
    assert computing.stdout is not None
    computing.stdin.write(f"{seconds}\n")
    computing.stdin.flush()
    fewest, last = computing.stdout.readline().split()
    return int(fewest), int(last)


@pytest.mark.skipif(available_cores() < 2, reason="one core is never shared out")
def test_threads_fall_beside_a_real_program_that_wants_every_core(computing: subprocess.Popen[str]) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(available_cores())]
    try:
        fewest, _ = compute(computing, 4.0)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert fewest < available_cores()


@pytest.mark.slow  # on cores that do nothing else
@pytest.mark.skipif(available_cores() < 2, reason="one core is never shared out")
def test_threads_fall_beside_one_real_program_and_come_back_when_it_ends(
    computing: subprocess.Popen[str],
) -> None:
    assert compute(computing, 2.0)[1] == available_cores()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert compute(computing, 3.0)[0] < available_cores()
    finally:
        busy.kill()
        busy.wait()
    assert compute(computing, 5.0)[1] == available_cores()
