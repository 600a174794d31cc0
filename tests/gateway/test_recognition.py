"""Conversations that clients cut, compact, rewrite or sign are found again; others are not taken for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from running_gateway import RunningGateway, assistant, user

from openclaw_rl.model import TurnKind, TurnState
from openclaw_rl.policy import dialects

LONG = "Boil it with one part of vinegar and two parts of water, then rinse it well."
TOOLS = [{"type": "function", "function": {"name": "exec"}}]
CALL = '<tool_call>{"name": "exec", "arguments": {"command": "ls"}}</tool_call>'


def test_a_history_without_its_beginning_is_continued(gateway: RunningGateway) -> None:
    gateway.engine.say("a", LONG, "c")
    gateway.chat(user("hi"))
    second = gateway.chat(user("hi"), assistant("a"), user("how do I descale a kettle?"))
    third = gateway.chat(user("how do I descale a kettle?"), assistant(LONG), user("I have no vinegar"))
    assert (third.parent_id, third.session_id) == (second.id, second.session_id)
    assert gateway.next_states(second) == [("conversation", ["I have no vinegar"])]


def test_a_short_reply_after_other_words_is_no_evidence(gateway: RunningGateway) -> None:
    gateway.engine.say("yes", "b")
    first = gateway.chat(user("is it warm?"))
    other = gateway.chat(user("is it far?"), assistant("yes"), user("how far?"))
    assert other.parent_id is None
    assert gateway.next_states(first) == []


@pytest.mark.parametrize("names", [({}, {}), ({"X-Session-Id": "s:0"}, {"X-Session-Id": "s:1"})])
def test_a_call_is_known_by_its_id_after_compaction_and_under_a_new_name(
    gateway: RunningGateway, names: tuple[dict[str, str], dict[str, str]]
) -> None:
    gateway.engine.say(CALL, "b")
    first = gateway.chat(user("list"), tools=TOOLS, headers=names[0])
    call_id = first.reply["tool_calls"][0]["id"].replace("_", "")
    call = {"id": call_id, "type": "function", "function": {"name": "exec", "arguments": '{"command":"ls"}'}}
    result = {"role": "tool", "tool_call_id": call_id, "content": "x.txt"}
    again = {"role": "assistant", "content": None, "tool_calls": [call]}
    second = gateway.chat(user("Summary: files."), again, result, tools=TOOLS, headers=names[1])
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["x.txt"])]


NAMES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"X-Session-Id": "s:0"}, {}),
    ({}, {"X-Session-Id": "s:1"}),
    ({"X-Session-Id": "s:0"}, {"X-Session-Id": "s:1"}),
]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("before", [[], [user("Say it!")], [user("how?"), assistant("so"), user("and?")]])
def test_a_strangers_same_reply_is_no_evidence_however_long(
    gateway: RunningGateway, before: list[dict[str, Any]], names: tuple[dict[str, str], dict[str, str]]
) -> None:
    """Only one turn has that reply, but nothing before it agrees."""
    gateway.engine.say(LONG, "b")
    first = gateway.chat(user("how do I descale a kettle?"), headers=names[0])
    other = gateway.chat(*before, assistant(LONG), user("a stranger's words"), headers=names[1])
    assert other.parent_id is None
    assert other.session_id != first.session_id
    assert gateway.next_states(first) == []


@pytest.mark.parametrize(
    ("question", "is_moved"), [("ok", False), ("how do I descale a kettle of steel?", True)]
)
def test_a_named_session_goes_on_from_another_only_if_much_before_agrees(
    gateway: RunningGateway, question: str, is_moved: bool
) -> None:
    gateway.engine.say(LONG, "b")
    first = gateway.chat(user("before"), assistant("x"), user(question), headers={"X-Session-Id": "a"})
    history = [user("Summary."), user(question), assistant(LONG)]
    second = gateway.chat(*history, user("no"), headers={"X-Session-Id": "b"})
    assert (second.parent_id == first.id) is is_moved
    assert bool(gateway.next_states(first)) is is_moved


def test_a_reply_to_the_same_words_in_two_sessions_is_of_neither(gateway: RunningGateway) -> None:
    gateway.engine.say(LONG, LONG, "b")
    asked = user("how do I descale a kettle?")
    turns = [gateway.chat(user(name), assistant("hi"), asked) for name in ("ann", "bob")]
    third = gateway.chat(user("Summary."), asked, assistant(LONG), user("no"))
    assert third.parent_id is None
    assert [gateway.next_states(turn) for turn in turns] == [[], []]


@pytest.mark.parametrize(
    ("id_end", "asked", "is_ours"),
    [
        ("0", "Summary: files.", False),
        ("0", "list", False),
        ("exec:17", "list", False),
        ("0000000000000000000000017", "list", False),
        ("kX8vQ2mZp4LrT7wYbN1cJd5E", "Summary: files.", False),
        ("kX8vQ2mZp4LrT7wYbN1cJd5E", "list", True),
    ],
)
@pytest.mark.parametrize("names", NAMES)
def test_ids_that_other_models_give_are_no_proof_alone(
    gateway: RunningGateway,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[dict[str, str], dict[str, str]],
    id_end: str,
    asked: str,
    is_ours: bool,
) -> None:
    """Some number the calls of each reply from 0."""
    monkeypatch.setattr(dialects, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=id_end)))
    gateway.engine.say(CALL, "b")
    first = gateway.chat(user("before"), assistant("x"), user("list"), tools=TOOLS, headers=names[0])
    call = first.reply["tool_calls"][0]
    assert call["id"] == f"call_{id_end[:24]}"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "x.txt"}
    again = {"role": "assistant", "content": None, "tool_calls": [call]}
    second = gateway.chat(user(asked), again, result, tools=TOOLS, headers=names[1])
    assert (second.parent_id == first.id) is is_ours
    assert bool(gateway.next_states(first)) is is_ours


@pytest.mark.parametrize(
    "kept", [LONG[:40], f"{LONG[:50]}…", f"{LONG}\n\n_sent by a bot_", f"Bot:\n{LONG}", f"  {LONG}\n"]
)
def test_a_reply_that_the_client_cut_or_signed_is_ours(gateway: RunningGateway, kept: str) -> None:
    gateway.engine.say(LONG, "b")
    first = gateway.chat(user("q"))
    second = gateway.chat(user("q"), assistant(kept), user("no"))
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["no"])]


@pytest.mark.parametrize(
    "theirs", [f"{LONG} And dry it.", "Boil it with one part of vinegar and water.", "Boil it", ""]
)
def test_another_models_answer_is_not_ours_though_it_begins_alike(
    gateway: RunningGateway, theirs: str
) -> None:
    gateway.engine.say(LONG, "b")
    first = gateway.chat(user("q"))
    gateway.chat(user("q"), assistant(theirs), user("no"))
    assert gateway.next_states(first) == []


def test_two_chats_of_one_person_are_two_sessions_and_two_persons_never_meet(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "a", "c", "d", "e")
    ann, bob = {"user": "ann"}, {"user": "bob"}
    anns = gateway.chat(user("hi"), **ann)
    bobs = gateway.chat(user("hi"), **bob)
    other = gateway.chat(user("weather?"), **ann)
    assert len({anns.session_id, bobs.session_id, other.session_id}) == 3
    gateway.chat(user("hi"), assistant("a"), user("from ann"), **ann)
    gateway.chat(user("hi"), assistant("a"), user("from bob"), **bob)
    assert gateway.next_states(anns) == [("conversation", ["from ann"])]
    assert gateway.next_states(bobs) == [("conversation", ["from bob"])]


def test_an_unknown_helpers_prompt_gives_way_to_what_the_person_says(gateway: RunningGateway) -> None:
    """No text marks it; but its prompt is in no later history, and the person's words are quite others."""
    gateway.engine.say("384,400 km.", "Lunar distance", "In light seconds: 1.28.")
    start = [user("How far is the moon?"), assistant("384,400 km.")]
    first = gateway.chat(user("How far is the moon?"))
    helper = gateway.chat(*start, user("Label what was said, for a list."))
    assert helper.kind is TurnKind.MAIN
    gateway.chat(*start, user("and in light seconds?"))
    assert gateway.next_states(first)[-1] == ("conversation", ["and in light seconds?"])
    assert gateway.next_states(helper) == []
    assert gateway.turn(helper.id).state is TurnState.WAITING_NEXT_STATE
    assert gateway.turn(first.id).state is TurnState.WAITING_JUDGE


def test_more_messages_after_one_whose_reply_was_dropped_are_no_edit(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "b", "c")
    first = gateway.chat(user("q"))
    dropped = gateway.chat(user("q"), assistant("a"), user("sum it up"))
    gateway.chat(user("q"), assistant("a"), user("sum it up"), user("hello?"))
    assert gateway.next_states(first) == [("conversation", ["sum it up"])]
    assert gateway.next_states(dropped) == []
    assert gateway.turn(dropped.id).state_reason == "the client went on without this reply"


def test_what_a_client_says_in_both_roles_is_no_conversation(gateway: RunningGateway) -> None:
    gateway.engine.say("diff", "better diff")

    def shown(contents: str) -> list[dict[str, Any]]:
        return [
            user(f"I have *added these files to the chat* so you can edit them.\n\n{contents}"),
            assistant("Ok, any changes I propose will be to those files."),
        ]

    first = gateway.chat(*shown("v1"), user("add a total"))
    second = gateway.chat(user("add a total"), assistant("diff"), *shown("v2"), user("with tax"))
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", ["with tax"])]


def test_a_response_continued_twice_is_a_branch_and_no_edit(gateway: RunningGateway) -> None:
    gateway.engine.say("a", "There is none.", "Market Square.")
    start = gateway.openai.responses.create(model="tiny", input="phone?")
    fax = gateway.openai.responses.create(model="tiny", input="and the fax?", previous_response_id=start.id)
    gateway.openai.responses.create(model="tiny", input="and the address?", previous_response_id=start.id)
    first, second = (gateway.turn(response.id.removeprefix("resp_")) for response in (start, fax))
    assert gateway.next_states(first) == [("conversation", ["and the fax?"])]
    assert gateway.next_states(second) == []


def test_a_turn_is_looked_for_in_a_bounded_part_of_a_history(gateway: RunningGateway) -> None:
    """Its cost is borne by all, since one request is placed at a time."""
    gateway.engine.context_length = 32_768
    gateway.engine.say("a", "b", "c")
    first = gateway.chat(user("q"))

    def answered_elsewhere(replies: int) -> list[dict[str, Any]]:
        others = [message for n in range(replies) for message in (user(f"q{n}"), assistant(f"r{n}"))]
        return [user("q"), assistant("a"), *others, user("and?")]

    assert gateway.chat(*answered_elsewhere(400)).parent_id is None
    assert gateway.chat(*answered_elsewhere(200)).parent_id == first.id
