"""Several choices for one request: each is a turn of its own, and only the one that goes on can train."""

from __future__ import annotations

from running_gateway import MODEL, RunningGateway, assistant, eventually, user

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.gateway.delivery import OTHER_FAILED
from openclaw_rl.gateway.pairing import NOT_CHOSEN
from openclaw_rl.model import Turn, TurnState


def ask(gateway: RunningGateway, *replies: str) -> list[Turn]:
    gateway.engine.say(*replies)
    response = gateway.post([user("q")], n=len(replies), seed=5)
    assert response.status_code == 200
    return [gateway.turn(turn_id) for turn_id in response.headers["x-turn-id"].split(", ")]


def test_every_choice_is_a_turn_with_a_seed_of_its_own(gateway: RunningGateway) -> None:
    turns = ask(gateway, "one", "two", "three")
    assert [turn.reply["content"] for turn in turns] == ["one", "two", "three"]
    assert [turn.sampling.seed for turn in turns] == [5, 6, 7]
    assert len({turn.session_id for turn in turns}) == 1
    assert {turn.state for turn in turns} == {TurnState.WAITING_NEXT_STATE}


def test_the_prompt_counts_once_in_the_usage(gateway: RunningGateway) -> None:
    gateway.engine.say("one", "three")
    answer = gateway.openai.chat.completions.create(model=MODEL, messages=[user("q")], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(gateway.engine.asked[0][0])
    assert answer.usage.completion_tokens == len("one") + len("three") + 2


def test_the_choice_that_the_next_request_continues_is_paired_and_the_others_never_train(
    gateway: RunningGateway,
) -> None:
    one, two, three = ask(gateway, "one", "two", "three")
    after = gateway.chat(user("q"), assistant("two"), user("good"))
    assert (after.parent_id, after.session_id) == (two.id, two.session_id)
    assert gateway.next_states(two) == [("conversation", ["good"])]
    for other in (one, three):
        now = gateway.turn(other.id)
        assert (now.state, now.state_reason) == (TurnState.SUPERSEDED, NOT_CHOSEN)
        assert gateway.next_states(other) == []


def test_an_edit_after_several_choices_speaks_of_none_of_them(gateway: RunningGateway) -> None:
    gateway.engine.say("hello")
    first = gateway.chat(user("hi"))
    history = [user("hi"), assistant("hello")]
    gateway.engine.say("one", "two")
    choices = gateway.post([*history, user("q")], n=2).headers["x-turn-id"].split(", ")
    gateway.chat(*history, user("something else"))
    assert [gateway.next_states(gateway.turn(choice)) for choice in choices] == [[], []]
    assert gateway.next_states(first) == [("conversation", ["q"])]


def test_choices_are_streamed_side_by_side_with_their_index(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("aaaa", delay=0.02), Script("bbbb", delay=0.02))
    stream = gateway.openai.chat.completions.create(model=MODEL, messages=[user("q")], n=2, stream=True)
    order = [
        (choice.index, choice.delta.content)
        for chunk in stream
        for choice in chunk.choices
        if choice.delta.content
    ]
    assert [text for index, text in order if index == 0] == ["a"] * 4
    assert [text for index, text in order if index == 1] == ["b"] * 4
    assert {index for index, _ in order[:4]} == {0, 1}, "one did not wait for the other"


def test_when_one_choice_fails_the_request_fails_and_no_other_is_left_running(
    gateway: RunningGateway,
) -> None:
    gateway.engine.say(Script("x" * 300, delay=0.02), Script("half", fails_after=2))
    response = gateway.post([user("q")], n=2)
    assert response.status_code == 500
    assert gateway.engine.cancels == 1
    turns = eventually(
        lambda: len(aborted := gateway.store.conversations.turns(state=TurnState.ABORTED)) == 2 and aborted
    )
    assert {turn.id for turn in turns} == set(response.headers["x-turn-id"].split(", "))
    assert {turn.state_reason for turn in turns} == {"the engine failed: out of memory", OTHER_FAILED}
