"""What clients put around people's words, and what is left of a message without it."""

from __future__ import annotations

import time

import pytest

from openclaw_rl.wrappings import bare, is_injected, is_shown, words

STAMP = "[Sun 2026-11-29 15:17 UTC] "
RUNTIME = "\n\nRuntime: agent=main | session=agent:main:a | host=h"
SENDER = 'Conversation info: \u27e6openclaw:ctx\u27e7\n```json\n{"sender":{"id":"o"}}\n```\n\n'
REMINDER = "<system-reminder>\nuse pnpm\n</system-reminder>"


@pytest.mark.parametrize(
    ("text", "said", "compared"),
    [
        ("hello", "hello", "hello"),
        (f"{STAMP}hello{RUNTIME}", "hello", f"{STAMP}hello"),
        (f"{STAMP}{SENDER}hello", "hello", f"{STAMP}{SENDER}hello"),
        (
            f"{STAMP}[Queued user message from a previous active turn; preserved as context only.]\n"
            f"hi\nyou\n\nContinue the current task from the existing transcript, once more.{RUNTIME}",
            "hi\nyou",
            f"{STAMP}hi\nyou",
        ),
        (f"{REMINDER}\nhello", "hello", "hello"),
        (f"hello\n{REMINDER}", "hello", "hello"),
        ("done\n<environment_details>\n# Time\n12:00\n</environment_details>", "done", "done"),
        (
            "### Task:\nRespond to the user query using the provided context.\n"
            "<context>\nx\n</context>\n\nhello\n",
            "hello",
            "hello",
        ),
        # Words of a person's own
        ("what does <system-reminder>x</system-reminder> do?",) * 3,
        ("<environment_details> without an end",) * 3,
        ("a\nRuntime: agent=x",) * 3,
        ("### Task:\nfeed the cat",) * 3,
    ],
)
def test_what_is_wrapped_around_words_comes_off(text: str, said: str, compared: str) -> None:
    assert words(text) == said
    assert bare(text) == compared


def test_a_message_may_be_the_clients_as_a_whole() -> None:
    assert is_injected("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone")
    assert is_injected(f"{REMINDER}\n{REMINDER}")
    assert not is_injected(f"{REMINDER}\nhello")
    assert not is_injected("")


def test_a_pair_is_shown_only_with_the_acknowledgement_that_its_client_writes() -> None:
    assert is_shown("I committed the changes with git hash 1f2e & commit msg: x", "Ok.")
    assert not is_shown("I committed the changes with git hash 1f2e & commit msg: x", "Ok, well done.")
    assert not is_shown("I committed it", "Ok.")


@pytest.mark.parametrize(
    "text", ["<system-reminder>" * 30_000, "<system-reminder></system-reminder>" * 30_000, " \n" * 400_000]
)
def test_no_text_keeps_it_busy(text: str) -> None:
    started = time.process_time()
    words(text)
    is_injected(text)
    assert time.process_time() - started < 5
