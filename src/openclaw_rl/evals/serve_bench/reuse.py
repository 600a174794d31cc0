"""The part `reuse`: the first token of a second turn whose first turn was long, with and without reuse.

Two real servers, one of which keeps nothing of finished replies. A client sends each the same conversation.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

import httpx2

from openclaw_rl.evals.own_server import own_server
from openclaw_rl.evals.serve_bench.http_streams import client, stream
from openclaw_rl.evals.serve_bench.plan import SERVED, TEMPERATURE, Plan, Steps
from openclaw_rl.evals.serve_bench.summary import Part
from openclaw_rl.evals.update_bench.work import QUESTION
from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded import model_files

FOLLOW_UP = "Thank you. And what should I do about it first?"
REPLY_TOKENS = 16


def reuse(plan: Plan, steps: Steps) -> Part:
    """Milliseconds to the second turn's first token, medians over rounds."""
    template = model_files.load_template(plan.model_folder)
    with (
        steps.part("reuse", 2 * plan.rounds),
        own_server(plan.settings, plan.log) as keeping,
        own_server({**plan.settings, "engine.cache_tokens": 0}, plan.log) as forgetting,
    ):
        seconds: dict[str, list[float]] = {"with": [], "without": []}
        for turn in range(plan.rounds):
            opening = long_message(template, f"Report {turn}", plan.long)
            for how, server in (("with", keeping), ("without", forgetting)):
                steps.begin(f"a second turn {how} reuse")
                seconds[how].append(asyncio.run(_second_turn(server.url, opening)))
                steps.done()
    return {
        "long": plan.long,
        **{how: {"first_token_ms": round(median(of) * 1000, 1)} for how, of in seconds.items()},
    }


async def _second_turn(url: str, opening: str) -> float:
    """Seconds to its first token."""
    messages: list[Message] = [{"role": "user", "content": opening}]
    async with client(url) as http:
        first = await _ask(http, messages)
        messages += [{"role": "assistant", "content": first[1]}, {"role": "user", "content": FOLLOW_UP}]
        return (await _ask(http, messages))[0]


async def _ask(http: httpx2.AsyncClient, messages: list[Message]) -> tuple[float, str]:
    started = time.perf_counter()
    reply = await stream(http, SERVED, messages, max_tokens=REPLY_TOKENS, temperature=TEMPERATURE)
    return reply.arrivals[0] - started, reply.text


def long_message(template: ChatTemplate, name: str, tokens: int) -> str:
    """A message that makes a prompt of `tokens` tokens, or a few less."""

    def length(sentences: int) -> int:
        text = _text(name, sentences)
        return len(template.prompt_ids([{"role": "user", "content": text}]))

    most = 1
    while length(2 * most) <= tokens:
        most *= 2
    step = most
    while step:
        if length(most + step) <= tokens:
            most += step
        step //= 2
    return _text(name, most)


def _text(name: str, sentences: int) -> str:
    words = QUESTION.split()
    return f"{name}. " + " ".join(f"{number}: {words[number % len(words)]}." for number in range(sentences))
