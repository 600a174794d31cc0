"""What our processes and other programs find in their environment, whatever the user's own says."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl import process_environment

OURS = {"MALLOC_ARENA_MAX": "2"}
WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


COMMAND = """
import os, sys, types
from pathlib import Path
from openclaw_rl.cli.main import main
loaded = "torch" in sys.modules
name = "openclaw_rl.processes." + sys.argv[1]
process = sys.modules[name] = types.ModuleType(name)
setattr(process, sys.argv[1], lambda settings: print(loaded, os.environ.get("OMP_WAIT_POLICY")))
main()
"""

HEAPS = """
import ctypes, sys, threading
from openclaw_rl import process_environment
process_environment.enter()
library = ctypes.CDLL(None)
begun, done = threading.Barrier(9), threading.Barrier(9)
def allocate():
    begun.wait()  # all live at once, so glibc would give each a heap of its own
    library.malloc(ctypes.c_size_t(1000))
    done.wait()
threads = [threading.Thread(target=allocate, daemon=True) for _ in range(8)]
for thread in threads:
    thread.start()
begun.wait()
done.wait()
library.malloc_info(0, ctypes.c_void_p.in_dll(library, "stdout"))
library.fflush(None)
"""
ON_GLIBC = hasattr(ctypes.CDLL(None), "malloc_info")


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Somebody who has set nothing of it."""
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", *WAITS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WHATEVER", "else")
    return monkeypatch


def test_our_processes_are_told_how_many_heaps_to_keep() -> None:
    assert process_environment.ours() == {**os.environ, **OURS}


def test_a_user_who_says_how_many_heaps_is_not_overruled(user: pytest.MonkeyPatch) -> None:
    user.setenv("MALLOC_ARENA_MAX", "9")
    assert process_environment.ours() == dict(os.environ)


def test_threads_in_the_background_sleep_at_barriers() -> None:
    assert process_environment.ours(background=True) == {**os.environ, **OURS, "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("name", WAITS)
def test_a_user_who_says_how_threads_wait_is_not_overruled(name: str, user: pytest.MonkeyPatch) -> None:
    user.setenv(name, "7")
    assert process_environment.ours(background=True) == {**os.environ, **OURS}


def test_our_own_process_is_told_too_and_other_programs_are_not(user: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    user.setattr(os, "environ", dict(before))
    process_environment.enter()
    assert os.environ["MALLOC_ARENA_MAX"] == "2"
    assert process_environment.others() == before


def test_other_programs_find_what_the_user_has_set(user: pytest.MonkeyPatch) -> None:
    user.setenv("MALLOC_ARENA_MAX", "9")
    before = dict(os.environ)
    user.setattr(os, "environ", dict(before))
    process_environment.enter()
    assert process_environment.others() == before


@pytest.mark.parametrize(("command", "waits"), [("learn", "PASSIVE"), ("serve", "None")])
def test_the_learner_is_in_the_background_and_the_server_is_not(
    command: str, waits: str, tmp_path: Path
) -> None:
    told = [sys.executable, "-c", COMMAND, command, "--data-dir", str(tmp_path)]
    done = subprocess.run(told, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", waits]


@pytest.mark.skipif(not ON_GLIBC, reason="only glibc keeps heaps for threads")
@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ({}, 2),
        ({"MALLOC_ARENA_MAX": "4"}, 4),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=5"}, 5),
    ],
)
def test_a_process_that_was_started_by_hand_keeps_as_few_heaps(
    users: dict[str, str], expected: int, user: pytest.MonkeyPatch
) -> None:
    for name, value in users.items():
        user.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", HEAPS], capture_output=True, text=True, check=True)
    assert done.stdout.count("<heap ") == expected
