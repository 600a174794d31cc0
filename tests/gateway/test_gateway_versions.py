"""Policy versions over HTTP: start-up, swaps, pinned versions, refusals, and what runs beside requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user

from openclaw_rl.evals.byte_template import byte_template
from openclaw_rl.evals.scripted_engine import Script, ScriptedEngine
from openclaw_rl.model import Judgement, PolicyVersion, TurnKind, TurnState, Update, VersionState
from openclaw_rl.store import Store


def write_version(store: Store, number: int) -> None:
    """What the learner does at the end of an update."""
    now = time.time()
    version = PolicyVersion(number, number - 1, VersionState.CANDIDATE, f"v{number}", "0" * 64, now, number)
    store.learning.record_update(Update(number, number, "binary", (), {}, now, now), version)


def state_of(gateway: RunningGateway, number: int) -> VersionState:
    version = gateway.store.learning.version(number)
    assert version is not None
    return version.state


@contextmanager
def gateway_with_versions(
    folder: Path, versions: int, unloadable: dict[int, str]
) -> Iterator[RunningGateway]:
    """A gateway started on a store that already holds versions."""
    store = Store.open(folder / "store.sqlite")
    for number in range(1, versions + 1):
        write_version(store, number)
    engine = ScriptedEngine(byte_template())
    engine.unloadable = unloadable
    with running_gateway(folder, store=store, engine=engine) as gateway:
        yield gateway


def test_the_newest_version_serves_before_the_first_request(tmp_path: Path) -> None:
    with gateway_with_versions(tmp_path, 2, {}) as gateway:
        assert gateway.http.get("/readyz").json() == {"status": "ready", "policy_version": 2}
        assert gateway.chat(user("q")).policy_version == 2
        assert state_of(gateway, 2) is VersionState.SERVING
        assert state_of(gateway, 0) is VersionState.RETIRED


def test_start_up_goes_back_to_the_newest_version_that_loads(tmp_path: Path) -> None:
    with gateway_with_versions(tmp_path, 3, {3: "truncated file", 2: "log-probs are not finite"}) as gateway:
        assert gateway.chat(user("q")).policy_version == 1
        assert state_of(gateway, 3) is VersionState.REJECTED
        rejected = gateway.store.learning.version(2)
        assert rejected is not None
        assert rejected.state_reason == "log-probs are not finite"


def test_the_base_serves_when_nothing_else_loads(tmp_path: Path) -> None:
    with gateway_with_versions(tmp_path, 1, {1: "gone"}) as gateway:
        assert gateway.chat(user("q")).policy_version == 0
        assert state_of(gateway, 0) is VersionState.SERVING


def test_a_server_without_any_usable_version_is_not_ready_but_alive(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    engine = ScriptedEngine(byte_template())
    engine.serving_version = 7
    engine.unloadable = {0: "no weights"}
    with running_gateway(tmp_path, store=store, engine=engine) as gateway:
        response = gateway.http.get("/readyz")
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "server_error"
        assert gateway.http.get("/healthz").status_code == 200
        assert state_of(gateway, 0) is not VersionState.REJECTED
        engine.unloadable = {}
        eventually(lambda: gateway.http.get("/readyz").status_code == 200)


def test_a_new_version_takes_over_and_a_running_stream_keeps_its_own(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("a long reply in the making", delay=0.04))
    with gateway.stream([user("q")]) as (response, chunks):
        first = next(chunks)
        write_version(gateway.store, 1)
        eventually(lambda: gateway.engine.serving_version == 1)
        assert gateway.post([user("other")]).headers["x-policy-version"] == "1"
        rest = list(chunks)
    assert response.headers["x-policy-version"] == "0"
    assert {chunk["system_fingerprint"] for chunk in [first, *rest]} == {"policy-0"}
    assert gateway.turn(response.headers["x-turn-id"]).policy_version == 0
    eventually(lambda: state_of(gateway, 1) is VersionState.SERVING)


def test_a_version_that_does_not_load_is_rejected_and_serving_goes_on(gateway: RunningGateway) -> None:
    gateway.engine.unloadable = {1: "shape mismatch"}
    write_version(gateway.store, 1)
    eventually(lambda: state_of(gateway, 1) is VersionState.REJECTED)
    assert gateway.chat(user("q")).policy_version == 0
    write_version(gateway.store, 2)
    eventually(lambda: gateway.engine.serving_version == 2)
    assert gateway.engine.published == [(1, True), (2, True)]


def test_a_version_that_cannot_be_loaded_just_now_is_tried_again(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.gateway.background.RETRY_SECONDS", 0.05)
    gateway.engine.failing_publications = 2
    write_version(gateway.store, 1)
    eventually(lambda: state_of(gateway, 1) is VersionState.SERVING)
    assert gateway.engine.published == [(1, True)] * 3
    assert gateway.chat(user("q")).policy_version == 1


def test_after_a_restart_the_version_that_served_serves_while_a_newer_one_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.gateway.background.RETRY_SECONDS", 0.05)
    store = Store.open(tmp_path / "store.sqlite")
    write_version(store, 1)
    assert store.learning.mark_serving(1)
    write_version(store, 2)
    engine = ScriptedEngine(byte_template())
    engine.failing_publications = 1
    publish = engine.publish
    seen: list[int] = []

    async def noted(version: PolicyVersion, *, serve: bool = True) -> None:
        await publish(version, serve=serve)
        seen.append(version.number)

    monkeypatch.setattr(engine, "publish", noted)
    with running_gateway(tmp_path, store=store, engine=engine) as gateway:
        eventually(lambda: state_of(gateway, 2) is VersionState.SERVING)
        assert seen == [1, 2]
        assert gateway.chat(user("q")).policy_version == 2


def test_a_rollback_is_followed(gateway: RunningGateway) -> None:
    write_version(gateway.store, 1)
    eventually(lambda: state_of(gateway, 1) is VersionState.SERVING)
    gateway.store.learning.mark_rejected(1, "worse than its parent")
    eventually(lambda: gateway.engine.serving_version == 0)
    eventually(lambda: state_of(gateway, 0) is VersionState.SERVING)


def test_a_pinned_version_answers_and_its_turn_is_side(gateway: RunningGateway) -> None:
    write_version(gateway.store, 1)
    eventually(lambda: gateway.engine.serving_version == 1)
    response = gateway.post([user("q")], model=f"{MODEL}@0", turn_type="main")
    assert response.headers["x-policy-version"] == "0"
    assert response.json()["model"] == f"{MODEL}@0"
    turn = gateway.turn(response.headers["x-turn-id"])
    assert (turn.kind, turn.kind_reason) == (TurnKind.SIDE, "asked for a pinned version")
    assert gateway.http.get(f"/v1/models/{MODEL}@0").json()["policy_version"] == 0


def test_a_pinned_version_that_is_not_loaded_is_loaded_without_serving(gateway: RunningGateway) -> None:
    write_version(gateway.store, 1)
    eventually(lambda: gateway.engine.serving_version == 1)
    gateway.engine.versions.discard(0)
    first = gateway.chat(user("q"))
    side = gateway.chat(user("q"), assistant("fine"), user("no"), model=f"{MODEL}@0")
    assert (side.policy_version, gateway.engine.serving_version) == (0, 1)
    assert gateway.engine.published[-1] == (0, False)
    assert gateway.next_states(first) == []


def test_a_pinned_version_that_cannot_be_loaded_is_not_found(tmp_path: Path) -> None:
    with gateway_with_versions(tmp_path, 1, {1: "the file is gone"}) as gateway:
        response = gateway.post([user("q")], model=f"{MODEL}@1")
        assert response.status_code == 404
        assert "the file is gone" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "name", ["gpt-5", f"{MODEL}@9", f"{MODEL}@", f"{MODEL}@x", f"{MODEL}@-1", "tin@0", ""]
)
def test_an_unknown_model_is_not_found_and_told_what_exists(gateway: RunningGateway, name: str) -> None:
    response = gateway.post([user("q")], model=name)
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'tiny'" in error["message"]
    assert "tiny@0" in error["message"]


def test_the_server_says_how_it_is(gateway: RunningGateway) -> None:
    gateway.engine.say("five")
    gateway.chat(user("q"))
    report = eventually(
        lambda: next(
            (r for r in gateway.store.reports().values() if r.detail.get("tokens_generated") == 5), None
        )
    )
    assert (report.name, report.phase) == ("server", "serving")
    assert report.detail["version"] == 0
    assert report.detail["active_requests"] == 0
    assert report.detail["url"].startswith("http://127.0.0.1:")
    reported_at = report.updated_at
    time.sleep(1.2)
    assert gateway.store.reports()["server"].updated_at == reported_at, "nothing changed since"


def test_a_failing_background_step_is_tried_again(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gateway.store.learning.newest_good_version
    failures = iter([OSError("disk"), OSError("disk")])

    def fails_twice() -> PolicyVersion:
        for error in failures:
            raise error
        return whole()

    monkeypatch.setattr(gateway.store.learning, "newest_good_version", fails_twice)
    write_version(gateway.store, 1)
    eventually(lambda: gateway.engine.serving_version == 1, seconds=10)


def test_what_an_engine_cannot_record_in_full_is_served_judged_and_set_aside(gateway: RunningGateway) -> None:
    gateway.engine.unlearnable_because = "sampled with top-p by an engine that tells no full log-probs"
    turn = gateway.chat(user("?"))
    assert turn.sampling.unlearnable == gateway.engine.unlearnable_because
    gateway.engine.unlearnable_because = ""
    assert gateway.chat(user("?"), turn.reply, user("No.")).sampling.unlearnable == ""
    (state,) = gateway.store.conversations.next_states(turn.id)
    judgement = Judgement("judge_1", turn.id, state.id, "rules", -1, "Look first.", (), time.time())
    assert gateway.store.learning.add_judgement(judgement) is TurnState.SET_ASIDE
    assert gateway.store.conversations.reasons() == [(TurnState.SET_ASIDE, turn.sampling.unlearnable, 1)]
    assert not gateway.store.learning.waiting_samples(1)
