"""Where the server of a data folder listens, and whether one runs there at all."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from openclaw_rl.config import Settings
from openclaw_rl.processes.running import NotYetError, server_url
from openclaw_rl.processes.single import AlreadyRunningError, is_held, only_one
from openclaw_rl.store import Store

URL = "http://127.0.0.1:4711"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data"})


def report(settings: Settings, phase: str) -> None:
    store = Store.open(settings.database)
    store.report("server", phase, url=URL)
    store.close()


def test_a_folder_that_is_not_there_has_no_server_and_is_not_made(settings: Settings) -> None:
    assert server_url(settings) is None
    assert not settings.home.exists()


def test_a_server_is_found_from_the_moment_when_it_serves(settings: Settings) -> None:
    with only_one(settings.home, "supervisor"):
        with pytest.raises(NotYetError, match="is starting on"):
            server_url(settings)
        with only_one(settings.home, "server"):
            report(settings, "loading the model")
            with pytest.raises(NotYetError, match="does not serve at this moment"):
                server_url(settings)
            report(settings, "serving")
            assert server_url(settings) == URL
        with pytest.raises(NotYetError, match="does not serve at this moment"):
            server_url(settings)  # it ended, and `up` starts it again


def test_what_a_killed_server_said_last_is_not_believed(settings: Settings) -> None:
    report(settings, "serving")
    assert server_url(settings) is None


def test_a_lock_is_held_as_long_as_its_holder_runs(tmp_path: Path) -> None:
    assert not is_held(tmp_path, "server")
    with only_one(tmp_path, "server"):
        assert is_held(tmp_path, "server")
        assert not is_held(tmp_path, "learner")
        with pytest.raises(AlreadyRunningError), only_one(tmp_path, "server"):
            pass
    assert not is_held(tmp_path, "server")


def test_who_only_asks_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with only_one(tmp_path, "server"):
        pass
    with (tmp_path / "server.lock").open() as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)

        def look_away() -> None:
            time.sleep(0.1)
            fcntl.flock(glance, fcntl.LOCK_UN)

        looking = threading.Thread(target=look_away)
        looking.start()
        with only_one(tmp_path, "server"):
            assert is_held(tmp_path, "server")
        looking.join()
