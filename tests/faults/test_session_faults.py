"""Faults 42 to 53 of docs/faults.md: which conversation a request belongs to, and what it says of a reply."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from judging import judge_all
from openclaw_texts import (
    COMPLETION,
    CRON,
    HEARTBEAT,
    MEMORY_FLUSH,
    PAST_HEARTBEAT,
    REWORDED_HEARTBEAT,
    person,
)
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user

from openclaw_rl.evals.byte_template import CHATML, byte_template
from openclaw_rl.evals.scripted_engine import Script, ScriptedEngine
from openclaw_rl.judge.rules_judge import RulesJudge
from openclaw_rl.model import Turn, TurnKind, TurnState

LONG = "line of a long text\n" * 600


def told(gateway: RunningGateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.http.get("/v1/admin/turns").json()
    return found


def test_fault_42_a_client_that_sends_no_headers_is_paired_and_judged(gateway: RunningGateway) -> None:
    """Without a header every request is side and nothing ever trains; here two plain requests are a turn."""
    gateway.engine.say("the answer", "sorry")
    first = gateway.chat(user("a question"))
    assert (first.kind, first.state) == (TurnKind.MAIN, TurnState.WAITING_NEXT_STATE)
    second = gateway.chat(user("a question"), assistant("the answer"), user("That is wrong. Be brief."))
    assert (second.session_id, second.parent_id) == (first.session_id, first.id)
    assert gateway.next_states(first) == [("conversation", ["That is wrong. Be brief."])]
    judge_all(gateway.store, RulesJudge())
    (judgement,) = gateway.store.learning.judgements(first.id)
    assert judgement.score == -1
    assert gateway.turn(first.id).state is TurnState.WAITING_UPDATE


def test_fault_42_every_turn_says_why_it_did_or_did_not_become_trainable(gateway: RunningGateway) -> None:
    """Requests are dropped in silence; here each turn has a state, and words that say why."""
    gateway.engine.say("a", "b", "c", "d", Script("half", fails_after=2))
    first = gateway.chat(user("q"))
    second = gateway.chat(user("q"), assistant("a"), user("Thanks, that is right!"))
    third = gateway.chat(
        user("q"), assistant("a"), user("Thanks, that is right!"), assistant("b"), user("hm")
    )
    side = gateway.chat(user("name this"), turn_type="side")
    broken = gateway.post([user("x")]).headers["x-turn-id"]
    judge_all(gateway.store, RulesJudge())
    by_id = {turn["turn_id"]: turn for turn in told(gateway)["data"]}
    why_not = by_id[second.id]["reason"]
    assert {name: (turn["state"], turn["trainable"], turn["reason"]) for name, turn in by_id.items()} == {
        first.id: ("waiting_update", True, "judged; waits for an update"),
        second.id: (gateway.turn(second.id).state.value, False, why_not),
        third.id: ("waiting_next_state", None, "waits for the next message of its conversation"),
        side.id: ("side", False, "the client said side"),
        broken: ("aborted", False, "the engine failed: out of memory"),
    }
    assert why_not


@pytest.mark.parametrize("batch_size", [16, 2])
def test_fault_43_it_says_how_many_samples_the_next_update_still_needs(
    tmp_path: Path, batch_size: int
) -> None:
    """Nobody can tell when training begins; here collected, needed and missing are numbers, by reason."""
    with running_gateway(tmp_path, more={"learn": {"batch_size": batch_size}}) as gateway:
        expected = {"collected": 0, "needed": batch_size, "missing": batch_size, "enabled": True}
        assert told(gateway)["next_update"] == expected
        gateway.engine.say("a")
        gateway.chat(user("q"))
        gateway.chat(user("q"), assistant("a"), user("That is wrong."))
        judge_all(gateway.store, RulesJudge())
        now = told(gateway)
        assert now["next_update"] == {**expected, "collected": 1, "missing": batch_size - 1}
        assert now["counts"]["waiting_update"] == now["counts"]["waiting_next_state"] == 1
        assert set(now["counts"]) == {state.value for state in TurnState}


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"X-Session-Id": "chat-1"}, {}),
        ({"x-session-affinity": "chat-1"}, {}),
        ({"session_id": "chat-1"}, {}),
        ({}, {"session_id": "chat-1"}),
        ({}, {"prompt_cache_key": "chat-1"}),
        ({}, {"metadata": {"session_id": "chat-1"}}),
        ({"X-Session-Id": "chat-1", "session_id": "other"}, {"user": "other"}),
    ],
)
def test_fault_44_every_name_of_a_session_means_the_same_session(
    gateway: RunningGateway, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    """Clients name their session each in another way; here all known names are read, in one order."""
    first = gateway.chat(user("q"), headers={"X-Session-Id": "chat-1"})
    second = gateway.chat(user("q"), assistant("fine"), user("thanks"), headers=headers, **fields)
    assert second.session_id == first.session_id
    assert gateway.next_states(first) == [("conversation", ["thanks"])]


def test_fault_44_an_id_of_one_request_splits_no_conversation(gateway: RunningGateway) -> None:
    """A header that names a request is taken for the session's, and each turn is alone; here it is a hint."""
    first = gateway.chat(user("q"), headers={"x-client-request-id": "request-1"}, user="ann")
    second = gateway.chat(
        user("q"), assistant("fine"), user("no"), headers={"x-client-request-id": "request-2"}, user="ann"
    )
    assert (second.session_id, second.parent_id) == (first.session_id, first.id)


@pytest.mark.parametrize("named", [{}, {"X-Session-Id": "chat"}])
@pytest.mark.parametrize("poll", [HEARTBEAT, REWORDED_HEARTBEAT, CRON, MEMORY_FLUSH, COMPLETION])
def test_fault_45_a_reply_waits_for_a_person_and_no_heartbeat_is_heard_for_one(
    gateway: RunningGateway, poll: dict[str, Any], named: dict[str, str]
) -> None:
    """A heartbeat in the conversation is judged as the user's reaction; here the reaction is a person's."""
    gateway.engine.say("the answer", "HEARTBEAT_OK", "sorry")
    history = [person("hi", key="agent:main:main")]
    first = gateway.chat(*history, headers=named)
    history += [assistant("the answer")]
    beat = gateway.chat(*history, poll, headers=named)
    assert (beat.kind, beat.state, beat.session_id) == (TurnKind.SIDE, TurnState.SIDE, first.session_id)
    assert gateway.turn(first.id).state is TurnState.WAITING_NEXT_STATE
    complaint = person("That was wrong.")
    second = gateway.chat(*history, PAST_HEARTBEAT, assistant("HEARTBEAT_OK"), complaint, headers=named)
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", [complaint["content"]])]


def test_fault_45_a_heartbeat_that_claims_to_be_main_is_no_reaction_either(gateway: RunningGateway) -> None:
    """A client marks all it sends as main; here a heartbeat is still nobody's opinion of the reply."""
    first = gateway.chat(person("hi"))
    beat = gateway.chat(person("hi"), assistant("fine"), HEARTBEAT, headers={"X-Turn-Type": "main"})
    assert beat.kind is TurnKind.MAIN
    assert gateway.next_states(first) == []


@pytest.mark.parametrize("named", [{}, {"X-Session-Id": "chat"}])
def test_fault_46_the_same_request_again_is_no_feedback_on_the_first_reply(
    gateway: RunningGateway, named: dict[str, str]
) -> None:
    """One message runs twice and the second run is judged as a reaction; here the first is superseded."""
    gateway.engine.say("a", "b", "c", "d")
    first = gateway.chat(user("q"), headers=named)
    history = [user("q"), assistant("a"), user("go on")]
    tried = gateway.chat(*history, headers=named)
    again = gateway.chat(*history, headers=named)
    assert gateway.turn(tried.id).state is TurnState.SUPERSEDED
    assert gateway.turn(tried.id).state_reason == "the same request was sent again"
    assert gateway.next_states(tried) == []
    assert gateway.next_states(first) == [("conversation", ["go on"])]
    gateway.chat(*history, assistant("c"), user("better"), headers=named)
    assert gateway.next_states(again) == [("conversation", ["better"])]


@pytest.mark.parametrize("copies", [2, 3])
def test_fault_46_a_message_that_the_client_stored_more_than_once_is_a_retry(
    gateway: RunningGateway, copies: int
) -> None:
    """A retry keeps the user's message two or three times; here the copies are no second opinion."""
    gateway.engine.say("a", "b", "c")
    gateway.chat(user("q"))
    history = [user("q"), assistant("a")]
    tried = gateway.chat(*history, user("go on"))
    history += [user("go on")] * copies
    again = gateway.chat(*history)
    assert gateway.next_states(tried) == []
    assert gateway.turn(tried.id).state is TurnState.SUPERSEDED
    gateway.chat(*history, assistant("c"), user("better"))
    assert gateway.next_states(again) == [("conversation", ["better"])]


def test_fault_47_a_request_replayed_after_a_time_out_counts_once(gateway: RunningGateway) -> None:
    """After a time-out the same prompt comes again; here it is one turn, and one next state of the last."""
    gateway.engine.say("a", Script("x" * 400, delay=0.02), "b")
    first = gateway.chat(user("q"))
    history = [user("q"), assistant("a"), user("go on")]
    with pytest.raises(httpx2.TimeoutException):
        gateway.http.post("/v1/chat/completions", json={"model": MODEL, "messages": history}, timeout=0.3)
    replayed = gateway.chat(*history)
    eventually(lambda: gateway.store.conversations.turns(state=TurnState.ABORTED))
    assert replayed.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["go on"])]
    assert [turn.id for turn in gateway.store.conversations.turns(state=TurnState.WAITING_NEXT_STATE)] == [
        replayed.id
    ]


def test_fault_47_a_replay_beside_the_running_request_counts_once_too(gateway: RunningGateway) -> None:
    """The first run is still on when the replay comes; here the reply that goes on is the one that counts."""
    gateway.engine.say("a", *[Script(f"b{n}", delay=0.05) for n in range(6)])
    first = gateway.chat(user("q"))
    history = [user("q"), assistant("a"), user("no")]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: gateway.post(history), range(6)))
    assert [answer.status_code for answer in answers] == [200] * 6
    assert gateway.next_states(first) == [("conversation", ["no"])]
    runs = [gateway.turn(answer.headers["x-turn-id"]) for answer in answers]
    chosen = runs[3]
    gateway.chat(*history, chosen.reply, user("thanks"))
    for run in runs:
        states = [("conversation", ["thanks"])] if run.id == chosen.id else []
        assert gateway.next_states(run) == states
        if run.id != chosen.id:
            assert gateway.turn(run.id).state is TurnState.SUPERSEDED


SUMMARY = (
    "The conversation history before this point was compacted into the following summary: all went well."
)


@pytest.mark.parametrize("named", [{}, {"X-Session-Id": "chat"}])
@pytest.mark.parametrize("keeps", ["nothing", "the last messages"])
def test_fault_48_a_summary_in_place_of_the_history_is_no_reaction(
    gateway: RunningGateway, named: dict[str, str], keeps: str
) -> None:
    """Compaction rewrites the history, and its summary is judged; here only what a person says later is."""
    gateway.engine.say("a", "b", "c", "d")
    history = [user("q"), assistant("a"), user("more")]
    gateway.chat(user("q"), headers=named)
    pending = gateway.chat(*history, headers=named)
    kept = [user("more"), assistant("b")] if keeps == "the last messages" else []
    after = gateway.chat(user(SUMMARY), *kept, user("now this"), headers=named)
    for turn in gateway.store.conversations.turns():
        for _, words in gateway.next_states(turn):
            assert SUMMARY not in words
    assert gateway.next_states(pending) in ([], [("conversation", ["now this"])])
    gateway.chat(user(SUMMARY), *kept, user("now this"), after.reply, user("good"), headers=named)
    assert gateway.next_states(after) == [("conversation", ["good"])]


STRICT = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + CHATML
)


def test_fault_49_two_user_messages_in_a_row_are_answered_by_strict_templates_too(tmp_path: Path) -> None:
    """A killed turn leaves no reply between two messages, and templates crash; here they are as one."""
    with running_gateway(tmp_path, engine=ScriptedEngine(byte_template(STRICT))) as gateway:
        gateway.engine.say("a", Script("killed", fails_after=2), "c")
        first = gateway.chat(user("one"))
        killed = gateway.post([user("one"), assistant("a"), user("two")]).headers["x-turn-id"]
        after = gateway.chat(user("one"), assistant("a"), user("two"), user("three"))
        assert after.parent_id == first.id
        prompt = gateway.engine.template.decode(after.prompt_ids)
        assert "two\n\nthree" in prompt
        assert gateway.next_states(gateway.turn(killed)) == []
        assert gateway.turn(killed).state is TurnState.ABORTED


def test_fault_50_what_nobody_goes_on_with_is_released_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions end without a word and their last turns wait for ever; here they expire, and are counted."""
    monkeypatch.setattr("openclaw_rl.gateway.background.IDLE_SECONDS", 0.1)
    with running_gateway(tmp_path, more={"sessions": {"idle_minutes": 0.3 / 60}}) as gateway:
        gateway.engine.say("a", "b")
        last = [gateway.chat(user(f"q{n}")) for n in range(2)]
        eventually(lambda: gateway.store.conversations.count_sessions().get("closed") == 2)
        for turn in last:
            assert gateway.turn(turn.id).state is TurnState.UNPAIRED
            session = gateway.store.conversations.session(turn.session_id)
            assert session is not None
            assert session.close_reason == "idle"
        counts = gateway.http.get("/v1/admin/status").json()["counts"]
        assert (counts["unpaired"], counts["waiting_next_state"]) == (2, 0)
        assert all(turn["reason"] for turn in told(gateway)["data"])


def test_fault_51_tenants_never_meet(tmp_path: Path) -> None:
    """Two users' conversations run into each other; here a key's sessions are its own, whatever it names."""
    with running_gateway(tmp_path, api_keys=("alice-key", "bob-key")) as gateway:
        bob = {"Authorization": "Bearer bob-key"}
        first = gateway.chat(user("q"), headers={"X-Session-Id": "same"})
        inferred = gateway.chat(user("q"), assistant("fine"), user("no"), headers=bob)
        named = gateway.chat(user("q"), headers={**bob, "X-Session-Id": "same"})
        own_form = gateway.chat(user("q"), headers={**bob, "X-Session-Id": first.session_id})
        sessions = [turn.session_id for turn in (first, inferred, named, own_form)]
        assert len(set(sessions)) == 4
        assert gateway.next_states(first) == []
        tenants = [tenant_of(gateway, turn) for turn in (first, inferred, named, own_form)]
        assert len(set(tenants)) == 2
        assert len(set(tenants[1:])) == 1
        assert "alice" not in tenants[0]


def tenant_of(gateway: RunningGateway, turn: Turn) -> str:
    session = gateway.store.conversations.session(turn.session_id)
    assert session is not None
    return session.tenant


def test_fault_52_nothing_of_one_episode_is_in_the_next(gateway: RunningGateway) -> None:
    """State stays from one episode to the next and history doubles; here a prompt is its own messages."""
    gateway.engine.say("first answer", "b", "other answer", "d")
    named = {"X-Session-Id": "episode"}
    gateway.chat(user("first question"), headers=named)
    second = gateway.chat(user("first question"), assistant("first answer"), user("go on"), headers=named)
    prompt = gateway.engine.template.decode(second.prompt_ids)
    for said in ("first question", "first answer", "go on"):
        assert prompt.count(said) == 1
    outcome = gateway.http.post("/v1/sessions/episode/outcome", json={"score": 1})
    assert outcome.status_code == 200
    fresh = gateway.chat(user("other question"), headers=named)
    assert "first" not in gateway.engine.template.decode(fresh.prompt_ids)
    assert fresh.parent_id is None
    assert gateway.next_states(second) == [("outcome", [])]


def test_fault_52_long_words_are_kept_whole(tmp_path: Path) -> None:
    """Replayed text is cut short and spoils later prompts; here what is rendered and kept is all of it."""
    with running_gateway(tmp_path, engine=ScriptedEngine(byte_template(), 200_000)) as gateway:
        gateway.engine.say(LONG, "b")
        first = gateway.chat(user("a" + LONG), max_tokens=100_000)
        assert first.reply["content"] == LONG
        second = gateway.chat(user("a" + LONG), assistant(LONG), user("b" + LONG))
        assert second.parent_id == first.id
        prompt = gateway.engine.template.decode(second.prompt_ids)
        assert prompt.count(LONG) == 3
        assert gateway.next_states(first) == [("conversation", ["b" + LONG])]


def test_fault_53_turns_follow_their_conversation_and_not_the_order_of_arrival(
    gateway: RunningGateway,
) -> None:
    """Credit runs along the order of arrival, across branches; here every turn is linked to its parent."""
    gateway.engine.say("root", "left", "right", "left on", "right on")
    root = gateway.chat(user("q"), session_id="tree")
    start = [user("q"), assistant("root")]
    with_left = [*start, user("go left")]
    with_right = [*start, assistant("from elsewhere"), user("go right")]
    left = gateway.chat(*with_left, session_id="tree")
    right = gateway.chat(*with_right, session_id="tree")
    with_right += [assistant("right"), user("right was good")]
    with_left += [assistant("left"), user("left was bad")]
    right_on = gateway.chat(*with_right, session_id="tree")
    left_on = gateway.chat(*with_left, session_id="tree")
    assert (left.parent_id, right.parent_id) == (root.id, root.id)
    assert (left_on.parent_id, right_on.parent_id) == (left.id, right.id)
    assert gateway.next_states(root) == [("conversation", ["go left"])]
    assert gateway.next_states(left) == [("conversation", ["left was bad"])]
    assert gateway.next_states(right) == [("conversation", ["right was good"])]
