"""Loop 2 over HTTP: which session a request belongs to, and what becomes the next state of which turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openclaw_texts import internal_context, person
from running_gateway import RunningGateway, assistant, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.model import TurnKind, TurnState

CALLS = (
    '<tool_call>{"name": "exec", "arguments": {"command": "echo one", "n": 1}}</tool_call>'
    '<tool_call>{"name": "exec", "arguments": {"command": "echo two"}}</tool_call>'
)
TOOLS = [{"type": "function", "function": {"name": "exec"}}]


def test_the_next_state_is_recorded_before_the_reply_to_it_is_sampled(gateway: RunningGateway) -> None:
    gateway.engine.say("a", Script("slow", delay=0.2))
    first = gateway.chat(user("q"))
    with gateway.stream([user("q"), assistant("a"), user("no")]) as (_, chunks):
        next(chunks)
        assert gateway.turn(first.id).state is TurnState.WAITING_JUDGE


def test_a_conversation_of_other_words_is_another_session(gateway: RunningGateway) -> None:
    first = gateway.chat(user("a question"))
    other = gateway.chat(user("another question"), assistant("fine"), user("go on"))
    same_start_again = gateway.chat(user("a question"))
    assert len({first.session_id, other.session_id, same_start_again.session_id}) == 3
    assert gateway.next_states(first) == []


def test_a_session_named_by_the_client_is_found_in_that_session_alone(gateway: RunningGateway) -> None:
    first = gateway.chat(user("q"), headers={"X-Session-Id": "one"})
    second = gateway.chat(user("q"), assistant("fine"), user("no"), headers={"X-Session-Id": "two"})
    assert second.session_id != first.session_id
    assert second.parent_id is None
    assert gateway.next_states(first) == []


def test_a_client_may_hand_back_the_session_id_it_was_given(gateway: RunningGateway) -> None:
    first = gateway.chat(user("q"))
    headers = {"X-Session-Id": first.session_id}
    assert gateway.chat(user("unrelated"), headers=headers).session_id == first.session_id
    made_up = {"X-Session-Id": "sess_" + "0" * 24}
    assert gateway.chat(user("q"), headers=made_up).session_id != made_up["X-Session-Id"]


def test_all_tool_results_are_one_next_state_however_the_client_rewrites_the_calls(
    gateway: RunningGateway,
) -> None:
    gateway.engine.say(CALLS)
    first = gateway.chat(user("run both"), tools=TOOLS)
    calls = [
        {
            "id": call["id"].replace("_", ""),
            "type": "function",
            "function": {
                "name": "exec",
                "arguments": json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":")),
            },
        }
        for call in first.reply["tool_calls"]
    ]
    results = [
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "one"},
        {"role": "tool", "tool_call_id": calls[1]["id"], "content": "two"},
    ]
    again = {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": "hm"}
    second = gateway.chat(user("run both"), again, *results, tools=TOOLS)
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["one", "two"])]


def test_injected_context_is_no_next_state_and_hides_no_continuation(gateway: RunningGateway) -> None:
    gateway.engine.say("<think>let me see</think>\n\nthe answer")
    system = {"role": "system", "content": "You are an agent."}
    first = gateway.chat(
        system, person("hi", key="agent:main:a", extra=" | channel=webchat"), internal_context()
    )
    assert first.kind is TurnKind.MAIN
    second = gateway.chat(
        {"role": "system", "content": "You are an agent. Today is another day."},
        person("hi", key="agent:main:a"),
        assistant("\n\nthe answer"),
        person("not what I asked"),
        internal_context("one"),
    )
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", [person("not what I asked")["content"]])]


def test_a_first_message_sent_again_in_a_named_session_is_a_retry(gateway: RunningGateway) -> None:
    headers = {"X-Session-Id": "s"}
    tried = gateway.chat(user("q"), headers=headers)
    gateway.chat(user("q"), headers=headers)
    assert gateway.turn(tried.id).state is TurnState.SUPERSEDED


def test_an_edited_message_is_the_next_state_of_the_reply_it_replaces(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "b", "c")
    first = gateway.chat(user("q"))
    replaced = gateway.chat(user("q"), assistant("a"), user("in feet"))
    edited = gateway.chat(user("q"), assistant("a"), user("in metres"))
    assert edited.parent_id == first.id
    assert gateway.next_states(replaced) == [("edit", ["in metres"])]
    assert gateway.turn(replaced.id).state is TurnState.WAITING_JUDGE
    assert gateway.next_states(first) == [("conversation", ["in feet"])]


def test_an_edit_says_nothing_of_a_reply_that_was_answered_already(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "b", "c", "d")
    gateway.chat(user("q"))
    answered = gateway.chat(user("q"), assistant("a"), user("x"))
    gateway.chat(user("q"), assistant("a"), user("x"), assistant("b"), user("y"))
    gateway.chat(user("q"), assistant("a"), user("z"))
    assert gateway.next_states(answered) == [("conversation", ["y"])]


def test_going_on_from_an_altered_reply_is_no_edit(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "b", "c")
    gateway.chat(user("q"))
    altered = gateway.chat(user("q"), assistant("a"), user("x"))
    gateway.chat(user("q"), assistant("a"), user("x"), assistant("not b"), user("y"))
    assert gateway.next_states(altered) == []
    assert gateway.turn(altered.id).state is TurnState.WAITING_NEXT_STATE


def test_a_new_first_message_in_a_named_session_is_no_edit(gateway: RunningGateway) -> None:
    first = gateway.chat(user("q"), headers={"X-Session-Id": "s"})
    gateway.chat(user("something else"), headers={"X-Session-Id": "s"})
    assert gateway.next_states(first) == []


def test_a_long_conversation_that_was_cut_back_continues_from_where_it_still_agrees(
    gateway: RunningGateway,
) -> None:
    first = gateway.chat(user("q"), headers={"X-Session-Id": "s"})
    foreign = [message for n in range(20) for message in (user(f"u{n}"), assistant(f"other model {n}"))]
    second = gateway.chat(user("q"), assistant("fine"), *foreign, user("end"))
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["u0"])]


def test_a_request_that_ends_with_our_reply_continues_nothing(gateway: RunningGateway) -> None:
    first = gateway.chat(user("q"))
    second = gateway.chat(user("q"), assistant("fine"), internal_context())
    assert second.parent_id is None
    assert gateway.next_states(first) == []


@pytest.mark.parametrize(("headers", "fields"), [({"X-Turn-Type": "side"}, {}), ({}, {"turn_type": "side"})])
def test_a_side_request_neither_gives_nor_gets_a_next_state(
    gateway: RunningGateway, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    gateway.engine.say("a", "a title", "b")
    first = gateway.chat(user("q"))
    side = gateway.chat(user("q"), assistant("a"), user("name this chat"), headers=headers, **fields)
    assert (side.kind, side.state, side.kind_reason) == (
        TurnKind.SIDE,
        TurnState.SIDE,
        "the client said side",
    )
    assert gateway.next_states(first) == []
    gateway.chat(user("q"), assistant("a"), user("name this chat"), assistant("a title"), user("good"))
    assert gateway.next_states(side) == []


@pytest.mark.parametrize(
    ("headers", "fields"),
    [({"X-Session-Done": "yes"}, {}), ({}, {"session_done": True}), ({}, {"session_done": 1})],
)
def test_a_session_said_to_be_done_closes_after_the_turn(
    gateway: RunningGateway, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    turn = gateway.chat(user("bye"), headers=headers, **fields)
    session = gateway.store.conversations.session(turn.session_id)
    assert session is not None
    assert session.closed_at is not None
    assert gateway.turn(turn.id).state is TurnState.UNPAIRED


def test_a_session_not_said_to_be_done_stays_open(gateway: RunningGateway) -> None:
    turn = gateway.chat(user("hi"), headers={"X-Session-Done": "false"}, session_done=False)
    session = gateway.store.conversations.session(turn.session_id)
    assert session is not None
    assert session.closed_at is None


def test_a_wrong_turn_type_is_refused(gateway: RunningGateway) -> None:
    response = gateway.post([user("q")], headers={"X-Turn-Type": "both"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "X-Turn-Type"
