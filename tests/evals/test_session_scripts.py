"""The labelled conversations: what they hold, and that clients write them as the recorded traffic looks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from openclaw_rl.evals.session_bench import script
from openclaw_rl.evals.session_bench.clients.by_name import CLIENTS
from openclaw_rl.evals.session_bench.clients.post import Post
from openclaw_rl.evals.session_bench.player import Player, labels

CONVERSATIONS = script.load()


def posts(name: str) -> list[Post]:
    """The requests of one conversation, with call ids as a server would give them."""
    conversation = next(one for one in CONVERSATIONS if one.name == name)
    player, made = Player(conversation), []
    for step in conversation.steps:
        asked, _ = player.post(step)
        made.append(CLIENTS[conversation.client](asked))
        calls = tuple(replace(call, id=f"call_{n}") for n, call in enumerate(step.reply.calls))
        player.settle(step, replace(step.reply, calls=calls))
    return made


def test_there_are_more_than_a_hundred_conversations_and_a_good_part_is_held_out():
    assert len(CONVERSATIONS) >= 100
    assert 0.25 < sum(one.held_out for one in CONVERSATIONS) / len(CONVERSATIONS) < 0.4
    assert len({one.kind for one in CONVERSATIONS}) >= 25
    assert all(count > 1 for count in Counter(one.kind for one in CONVERSATIONS).values())


def test_no_held_out_conversation_says_the_words_of_another():
    said = {
        held_out: {
            text
            for one in CONVERSATIONS
            if one.held_out is held_out
            for step in one.steps
            for text in step.user
        }
        for held_out in (True, False)
    }
    assert {text for text in said[True] & said[False] if len(text) > 20} == set()


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.name)
def test_labels_mean_requests_that_came_before_and_each_reply_once(conversation):
    seen: list[str] = []
    found = labels(conversation)
    for step in conversation.steps:
        label = found[step.id]
        assert label.answers is None or label.answers in seen
        assert (label.answers is None) or label.next
        seen.append(step.id)
    answered = [label.answers for label in found.values() if label.answers]
    assert len(set(answered)) == len(answered)


def test_openclaw_writes_what_was_recorded_from_it():
    after_tools = posts("openclaw: two commands at once")[1].body
    roles = [message["role"] for message in after_tools["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    first, calls = after_tools["messages"][1]["content"], after_tools["messages"][2]["tool_calls"]
    assert first.startswith("[Sun 2026-11-29 15:11 UTC] Which kernel")
    assert "\n\nRuntime: agent=main | session=agent:main:" in first
    assert [call["id"] for call in calls] == ["call0", "call1"]
    assert calls[0]["function"]["arguments"] == '{"command":"uname -r"}'
    assert after_tools["messages"][2]["content"] is None
    assert after_tools["messages"][-1]["content"][0]["text"].startswith(
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
    )


def test_the_memory_flush_has_the_main_history_and_a_key_of_its_own():
    flush = posts("openclaw: memory flush, compaction, and on with the tail")[2].body
    texts = [message["content"] for message in flush["messages"]]
    assert "session=agent:main:internal-session-effects:" in texts[1]
    assert texts[-1].startswith("Pre-compaction memory flush.")
    assert [tool["function"]["name"] for tool in flush["tools"]] == ["read", "write"]


def test_a_chained_response_sends_only_what_is_new():
    first, second, _ = posts("responses: chained by id")
    assert first.body["input"] == "What is the tallest tree?"
    assert second.body["input"] == "how tall?"
