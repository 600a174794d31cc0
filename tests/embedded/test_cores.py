"""Two processes that share the cores: each takes half while the other works, and all when it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from openclaw_rl.policy.embedded import cores
from openclaw_rl.policy.embedded.cores import CoreShare

WORK = """
import sys
from pathlib import Path
from openclaw_rl.policy.embedded.cores import CoreShare
share = CoreShare(Path(sys.argv[1]), "learner", 1)
for line in sys.stdin:
    with share.working():
        print("working", flush=True)
        sys.stdin.readline()
    print("done", flush=True)
"""

HELPERS = """
import os, torch
from openclaw_rl.policy.embedded.cores import without_helpers
torch.set_num_threads(2)
def compute():
    numbers = torch.rand(1 << 20)
    return (numbers + numbers).sum().item()
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
with without_helpers():
    compute()
after = threads()
compute()
print(after - before, threads() - after)
"""


class Learner:
    """Another process that works when told to."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORK, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def switch(self) -> str:
        """From idle to working or back; what it says when it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[Learner]:
    started = Learner(tmp_path)
    yield started
    started.kill()


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreShare]:
    """The server's, on a machine of eight cores; only the thread count is looked at, nothing computes."""
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # or idle threads would look like missing cores
    before = torch.get_num_threads()
    opened = CoreShare(tmp_path, "server")
    yield opened
    opened.close()
    torch.set_num_threads(before)


def test_the_share_halves_while_the_other_works_and_comes_back(share: CoreShare, learner: Learner) -> None:
    with share.working():
        assert torch.get_num_threads() == 8
        assert learner.switch() == "working"
        share.adjust()
        assert torch.get_num_threads() == 4
        assert learner.switch() == "done"
        share.adjust()
        assert torch.get_num_threads() == 8


def test_work_that_begins_beside_the_other_begins_with_half(share: CoreShare, learner: Learner) -> None:
    assert learner.switch() == "working"
    with share.working():
        assert torch.get_num_threads() == 4


def test_a_killed_worker_no_longer_counts(share: CoreShare, learner: Learner) -> None:
    assert learner.switch() == "working"
    with share.working():
        assert torch.get_num_threads() == 4
        learner.kill()
        share.adjust()
        assert torch.get_num_threads() == 8


def test_the_server_is_seen_working_by_the_learner_only_while_it_does(
    share: CoreShare, tmp_path: Path
) -> None:
    other = CoreShare(tmp_path, "learner")
    with share.working(), other.working():
        assert torch.get_num_threads() == 4
    with other.working():
        assert torch.get_num_threads() == 8
    other.close()


def test_a_limit_caps_the_threads_and_one_is_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: CoreShare, learner: Learner
) -> None:
    limited = CoreShare(tmp_path, "server", limit=3)
    with limited.working():
        assert torch.get_num_threads() == 3
    limited.close()
    monkeypatch.setattr(cores, "available_cores", lambda: 1)
    single = CoreShare(tmp_path, "server")
    assert learner.switch() == "working"
    with single.working():
        assert torch.get_num_threads() == 1
    single.close()


@pytest.mark.parametrize(
    ("said", "spin"),
    [
        ({}, True),
        ({"OMP_WAIT_POLICY": "passive"}, False),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, True),
        ({"GOMP_SPINCOUNT": "0"}, False),
        ({"KMP_BLOCKTIME": "0"}, False),
        ({"KMP_BLOCKTIME": "200"}, True),
        ({"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}, True),
    ],
)
def test_the_user_may_forbid_threads_to_spin(
    said: dict[str, str], spin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert cores.threads_spin() == spin


def test_a_count_that_somebody_else_has_set_is_set_again(share: CoreShare) -> None:
    with share.working():
        torch.set_num_threads(1)
        share.adjust()
        assert torch.get_num_threads() == 8


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_who_computes_without_helpers_starts_no_thread_and_anyone_else_does() -> None:
    done = subprocess.run([sys.executable, "-c", HELPERS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


def test_no_more_cores_are_counted_than_this_process_may_use() -> None:
    assert 1 <= cores.available_cores() <= cores.MOST_THREADS


@pytest.mark.parametrize(
    ("text", "expected"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_control_groups_quota_counts_in_whole_cores(
    tmp_path: Path, text: str, expected: int | None
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    found = cores._quota(tmp_path / "cpu.max")
    assert found == expected if expected else found > 1000
    assert cores._quota(tmp_path / "none") > 1000
