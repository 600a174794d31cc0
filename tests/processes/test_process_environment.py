"""What our processes and other programs find in their environment, whatever the user's own says."""

from __future__ import annotations

import os

import pytest

from openclaw_rl import process_environment

OURS = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "4", "MALLOC_ARENA_MAX": "2"}


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Somebody who has set nothing of it."""
    for name in (*OURS, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WHATEVER", "else")
    return monkeypatch


def test_our_processes_are_told_how_to_wait_and_how_many_heaps_to_keep() -> None:
    assert process_environment.ours() == {**os.environ, **OURS}


def test_what_the_user_has_set_stays(user: pytest.MonkeyPatch) -> None:
    user.setenv("GOMP_SPINCOUNT", "7")
    user.setenv("MALLOC_ARENA_MAX", "9")
    assert process_environment.ours() == {**os.environ, "KMP_BLOCKTIME": "4"}


def test_a_wait_policy_of_the_users_is_not_overruled_by_a_count(user: pytest.MonkeyPatch) -> None:
    user.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert process_environment.ours() == {**os.environ, "MALLOC_ARENA_MAX": "2"}


def test_other_programs_find_what_the_user_has_set_and_nothing_of_ours(user: pytest.MonkeyPatch) -> None:
    user.setenv("KMP_BLOCKTIME", "200")
    before = dict(os.environ)
    user.setattr(os, "environ", dict(before))
    process_environment.enter()
    assert os.environ["GOMP_SPINCOUNT"] == "300000"
    assert os.environ["KMP_BLOCKTIME"] == "200"
    assert process_environment.others() == before
