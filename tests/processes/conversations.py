"""Clients of a running server: conversations whose second message complains, as a user would."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

MODEL = "tiny"
COMPLAINT = "No, that is wrong. Please answer in one short sentence."
"""A reply that the rules judge scores -1 and takes a hint from."""


@dataclass
class Streamed:
    """What a client saw of one streamed reply."""

    status: int
    turn_id: str = ""
    version: str = ""
    fingerprints: set[str] = field(default_factory=set)
    text: str = ""
    finished: bool = False
    times: list[float] = field(default_factory=list)
    """When each piece of text came, as the store tells time."""


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def stream(
    http: httpx2.Client, messages: list[dict[str, str]], max_tokens: int = 24, **fields: Any
) -> Streamed:
    """Ask once and read to the end; a connection that breaks leaves `finished` False."""
    body = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "stream": True, **fields}
    seen = Streamed(0)
    try:
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            seen.status = response.status_code
            if seen.status != 200:
                return seen
            seen.turn_id = response.headers["x-turn-id"]
            seen.version = response.headers["x-policy-version"]
            for line in response.iter_lines():
                seen.finished = seen.finished or line == "data: [DONE]"
                for chunk in _chunks(line):
                    _note(chunk, seen)
    except httpx2.TransportError:
        pass
    return seen


def _chunks(line: str) -> Iterator[dict[str, Any]]:
    if line.startswith("data: ") and line != "data: [DONE]":
        yield json.loads(line[6:])


def _note(chunk: dict[str, Any], seen: Streamed) -> None:
    seen.fingerprints.add(chunk["system_fingerprint"])
    for choice in chunk["choices"]:
        if text := choice["delta"].get("content"):
            seen.text += text
            seen.times.append(time.time())


def question(number: int) -> str:
    return f"Question {number}: what is the capital of country {number}?"


def converse(http: httpx2.Client, number: int, max_tokens: int = 24) -> list[Streamed]:
    """A question, a reply, a complaint, a reply. Stops after a reply that did not come whole."""
    messages = [user(question(number))]
    first = stream(http, messages, max_tokens)
    if not first.finished:
        return [first]
    messages += [{"role": "assistant", "content": first.text}, user(COMPLAINT)]
    return [first, stream(http, messages, max_tokens)]
