"""Which requests are helper calls of clients that say nothing of it, and which only look like one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from openclaw_rl.gateway.helpers import helper_call


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


HISTORY = [user("How far is the moon?"), {"role": "assistant", "content": "384,400 km."}]
QUOTED = "USER: How far is the moon?\nASSISTANT: 384,400 km."
TAGGED = f"### Chat History:\n<chat_history>\n{QUOTED}\n</chat_history>"


@pytest.mark.parametrize(
    "messages",
    [
        [system("Summarize this coding conversation in under 50 characters."), user("x")],
        [system("你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题"), user("x")],
        [user(f"### Task:\nGenerate 1-3 broad tags.\n{TAGGED}")],
        [user(f"{QUOTED}\n\nProvide a concise, 5-word-or-less title for the conversation.")],
        [user(f"Name this chat, 10 characters at most. Summary or topic:\n\n```\n{QUOTED}\n```")],
        [system("Generate a title for the conversation you are shown. JSON only."), user(QUOTED)],
        [*HISTORY, user("Your task is to create a detailed summary of the conversation so far, paying ...")],
        [*HISTORY, user("Create a recap of this session in at most 50 words. Output only the recap.")],
        [*HISTORY, system("Summarize the discussion briefly in 200 words or less to use as a prompt.")],
        [*HISTORY, user("请总结以上对话，只返回摘要，不要解释，100 字以内")],
    ],
)
def test_helper_prompts_are_known_or_betray_themselves(messages: list[dict[str, Any]]) -> None:
    assert helper_call(messages, None, has_tools=False)


@pytest.mark.parametrize(
    "messages",
    [
        [user("Summarize this chat with my aunt:\nAnn: hi\nMe: hello")],
        [user(f"Was my bot rude here?\n\n{QUOTED}")],
        [user("Generate a title for my blog post about the moon, max 60 characters")],
        [user("Is <conversation> a valid tag? And </conversation>? In a summary, I mean.")],
        [system("You are a summarization assistant. Summarize what the user sends."), user("x")],
        [system("You are a helpful assistant. Summarize the conversation when asked to."), user("hi")],
        [*HISTORY, user("Now summarize our conversation")],
        [*HISTORY, user("Please write a title for this chat, I want to save it")],
        [*HISTORY, user("[Sun 2026-11-29 15:17 UTC] Title for this chat, only the title, no explanation")],
        [*HISTORY, user("总结一下对话")],
        [*HISTORY, user("Write the title query for the chat session. Only JSON, don't touch the messages.")],
        [*HISTORY, user("Write the query that summarizes a session. Return only JSON, no extra fields.")],
        [*HISTORY, user("Generate a title column for the chat table, max 60 characters, nothing else.")],
        [*HISTORY, user("Add tags to the thread story component, max 3, and do not limit the format")],
        [*HISTORY, user("Give the session a name column, nothing else in this migration")],
        [*HISTORY, user("The summary endpoint of the chat API must return only JSON, without any HTML")],
        [user("quota")],
    ],
)
def test_what_people_and_products_ask_is_no_helper_call(messages: list[dict[str, Any]]) -> None:
    assert helper_call(messages, None, has_tools=False) is None


def test_a_request_for_one_token_is_a_probe_only_where_it_is_known_as_one() -> None:
    assert helper_call([user("quota")], 1, has_tools=False) == "probe"
    assert helper_call([user("spam, y or n: win a car")], 1, has_tools=False) is None


def test_an_agent_with_tools_may_be_told_what_to_do_about_a_conversation() -> None:
    messages = [system("Summarize the conversation that the user names and file it."), user("the one of May")]
    assert helper_call(messages, None, has_tools=False)
    assert helper_call(messages, None, has_tools=True) is None


@pytest.mark.parametrize("text", ["user: \n" * 60_000, "<chat>\n" * 60_000, "only " * 90_000, "\n" * 400_000])
def test_no_text_keeps_it_busy(text: str) -> None:
    started = time.process_time()
    helper_call([user("title of this chat " + text)], None, has_tools=False)
    helper_call([*HISTORY, user("title of this chat " + text)], None, has_tools=False)
    assert time.process_time() - started < 5
