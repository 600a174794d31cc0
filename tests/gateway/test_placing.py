"""A request is placed beside its prompt: the disk holds up no prompt, and a place that fails no engine."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from running_gateway import RunningGateway, eventually, user

from openclaw_rl.store.conversations import Conversations


def test_the_engine_has_the_prompt_while_the_store_is_waited_for(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    open_session = Conversations.open_session

    def slowly(self: Conversations, session_id: str, tenant: str) -> object:
        assert written.wait(10)
        return open_session(self, session_id, tenant)

    monkeypatch.setattr(Conversations, "open_session", slowly)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(gateway.chat, user("Hello?"))
        try:
            eventually(lambda: gateway.engine.asked)
            assert not asked.done()
        finally:
            written.set()
        assert asked.result().reply["content"] == "fine"


def test_nothing_is_sampled_for_a_request_that_has_no_place(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Conversations, "open_session", fail)
    assert gateway.post([user("Hello?")]).status_code == 500
    assert gateway.engine.cancels == len(gateway.engine.asked) == 1
    assert gateway.engine.sampled == 0
