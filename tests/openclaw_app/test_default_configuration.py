"""OpenClaw as it comes, with its whole prompt: a window it fits into, and one that it is too large for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forcing_proxy import Proxy
from real_openclaw import OpenClaw
from recorded import Records
from running_gateway import RunningGateway, ScriptedEngine, byte_template, running_gateway
from running_processes import House
from snippet import connect
from talk import ERRAND, assert_paired, assert_the_rest_is_side, talk

pytestmark = pytest.mark.openclaw

WINDOW = 131072
"""In tokens of one byte each."""
CALL = '<tool_call>{"name": "read", "arguments": {"path": "notes.txt"}}</tool_call>'


@pytest.fixture
def large(tmp_path: Path) -> Iterator[RunningGateway]:
    """Our gateway with an engine that says "fine" unless told otherwise."""
    (tmp_path / "large").mkdir()
    engine = ScriptedEngine(byte_template(), WINDOW)
    with running_gateway(tmp_path / "large", engine=engine) as running:
        yield running


def test_its_whole_prompt_is_kept_apart_from_the_conversation(
    openclaw: OpenClaw, large: RunningGateway
) -> None:
    patch, _ = connect(f"{large.url}/v1")
    assert "tools" not in patch  # nothing is cut down for a large window
    openclaw.apply(patch)
    records = Records(large.http, large.store)
    with openclaw:
        told = talk(openclaw, records, before_the_tool=lambda: large.engine.say(CALL))
    assert_paired(told)
    assert_the_rest_is_side(told)
    whole = told.main[-1].turn
    assert len(whole.tools) > 8
    assert len(str(whole.messages[0]["content"])) > 25_000
    assert "INTERNAL_CONTEXT" in str(whole.messages[-1]["content"])


def test_a_prompt_too_long_for_the_model_is_said_and_leaves_nothing(
    openclaw: OpenClaw, house: House, proxy: Proxy
) -> None:
    patch, remarks = connect(f"{proxy.url}/v1")
    assert "small context" in remarks
    openclaw.apply({name: patch[name] for name in ("models", "agents")} | {"agents": _whole_prompt(patch)})
    records = Records(house.http, house.store)
    with openclaw:
        openclaw.say_in_vain("main", ERRAND)
        said = openclaw.command("agent", "--session-key", "agent:main:main", "--message", ERRAND, fails=True)
    assert "Context overflow: prompt too large" in said
    assert "This model's maximum context length is 8192 tokens" in openclaw.said()
    assert proxy.seen
    assert records.all() == []


def _whole_prompt(patch: dict) -> dict:
    return {"defaults": {"model": patch["agents"]["defaults"]["model"]}}
