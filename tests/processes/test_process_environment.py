"""What our processes and other programs find in their environment, whatever the user's own says."""

from __future__ import annotations

import os

import pytest

from openclaw_rl import process_environment

OURS = {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_ARENA_MAX": "2"}


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Somebody who has set nothing of it."""
    for name in (*OURS, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WHATEVER", "else")
    return monkeypatch


def test_our_processes_are_told_how_to_wait_and_how_many_heaps_to_keep() -> None:
    assert process_environment.ours() == {**os.environ, **OURS}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_a_user_who_says_how_threads_wait_is_not_overruled(name: str, user: pytest.MonkeyPatch) -> None:
    user.setenv(name, "7")
    user.setenv("MALLOC_ARENA_MAX", "9")
    assert process_environment.ours() == dict(os.environ)


def test_other_programs_find_what_the_user_has_set_and_nothing_of_ours(user: pytest.MonkeyPatch) -> None:
    user.setenv("MALLOC_ARENA_MAX", "9")
    before = dict(os.environ)
    user.setattr(os, "environ", dict(before))
    process_environment.enter()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["MALLOC_ARENA_MAX"] == "9"
    assert process_environment.others() == before
