"""Bodies that no route can answer, each with what is wrong with it; made when asked for, some are large."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MODEL = b'"model": "tiny", "max_tokens": 9, "response_id": "x", "score": 5, '
MEGABYTE = 1024 * 1024


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def asking(messages: bytes) -> bytes:
    """A request in any protocol: the conversation goes by two names."""
    return b"{" + MODEL + b'"messages": ' + messages + b', "input": ' + messages + b"}"


def saying(content: bytes) -> bytes:
    return asking(b'[{"role": "user", "content": ' + content + b"}]")


def called(arguments: str) -> bytes:
    function = {"name": "f", "arguments": arguments}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]},
        {"role": "user", "content": "go on"},
    ]
    return json.dumps({"model": "tiny", "messages": history}).encode()


NO_JSON: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no JSON": lambda: b"{",
    "no object": lambda: b"[]",
    "null": lambda: b"null",
    "a number": lambda: b"5",
    "text": lambda: b'"model"',
    "two objects": lambda: b"{}{}",
    "single quotes": lambda: b"{'model': 'tiny'}",
    "a comma too many": lambda: b'{"model": "tiny",}',
    "invalid UTF-8": lambda: b'{"model": "\xff"}',
    "invalid UTF-8 in a message": lambda: saying(b'"\xc3\x28"'),
    "UTF-16": lambda: '{"model": "tiny"}'.encode("utf-16"),
    "a byte order mark": lambda: b"\xef\xbb\xbf" + saying(b'"hi"'),
    "compressed": lambda: b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "a form": lambda: b"model=tiny&messages=hi",
    "NaN": lambda: b'{"temperature": NaN}',
    "Infinity": lambda: b'{"temperature": -Infinity}',
    "overflow": lambda: b'{"temperature": 1e999}',
    "endless integer": lambda: b'{"seed": ' + b"9" * 5000 + b"}",
    "lone surrogate": lambda: saying(b'"\\ud800"'),
    "lone surrogate in a key": lambda: asking(b'[{"role": "user", "content": "x", "\\udc00": 1}]'),
    "control character": lambda: saying(b'"a\x00b"'),
    "two values for one name": lambda: b'{"model": "tiny", "model": "other"}',
    "two values deep inside": lambda: saying(b'[{"type": "text", "text": "a", "text": "b"}]'),
    "two values of many": lambda: b"{" + b",".join(b'"k%d": 1' % (n % 99_999) for n in range(100_000)) + b"}",
    "deep": lambda: b'{"a": ' + deep(100_000) + b"}",
    "deeper than allowed": lambda: b'{"a": ' + deep(101) + b"}",
    "deep objects": lambda: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
}
"""Refused by every route before it looks at any field."""

LARGE_NO_JSON: dict[str, Callable[[], bytes]] = {
    "megabytes of brackets": lambda: b"[" * (10 * MEGABYTE),
    "one long number": lambda: b"1" * (10 * MEGABYTE),
    "megabytes of spaces": lambda: b" " * (10 * MEGABYTE),
}

NO_REQUEST: dict[str, Callable[[], bytes]] = {
    "nothing in it": lambda: b"{}",
    "no messages": lambda: asking(b"null"),
    "empty messages": lambda: asking(b"[]"),
    "messages that are a number": lambda: asking(b"5"),
    "messages that are an object": lambda: asking(b"{}"),
    "messages of numbers": lambda: asking(b"[5]"),
    "messages of lists": lambda: asking(b"[[]]"),
    "millions of messages that are none": lambda: asking(b"[" + b"5," * 2_000_000 + b"5]"),
    "half a million messages": lambda: asking(
        b"[" + b'{"role":"user","content":""},' * 200_000 + b'{"role":"user","content":""}]'
    ),
    "millions of parts that are none": lambda: saying(b"[" + b"5," * 2_000_000 + b"5]"),
    "a role that does not exist": lambda: asking(b'[{"role": "wizard", "content": "x"}]'),
    "a role that is a list": lambda: asking(b'[{"role": ["user"], "content": "x"}]'),
    "content that is a number": lambda: saying(b"5"),
    "content that is an object": lambda: saying(b'{"text": "x"}'),
    "an image": lambda: saying(b'[{"type": "image_url", "image_url": {"url": "x"}}]'),
    "a part whose text is a number": lambda: saying(b'[{"type": "text", "text": 5}]'),
    "a message of ten megabytes": lambda: saying(b'"' + b"x" * (5 * MEGABYTE) + b'"'),
    "ten megabytes in small parts": lambda: saying(
        b"[" + b",".join([b'{"type": "text", "text": "words and words"}'] * 100_000) + b"]"
    ),
    "a model that is a number": lambda: b'{"model": 5, "messages": [{"role": "user", "content": "x"}]}',
    "a model that does not exist": lambda: saying(b'"x"').replace(b'"tiny"', b'"gpt"'),
    "tools that are a text": lambda: b'{"tools": "x", ' + saying(b'"x"')[1:],
    "tools of numbers": lambda: b'{"tools": [5], ' + saying(b'"x"')[1:],
    "a tool without a name": lambda: b'{"tools": [{"type": "function"}], ' + saying(b'"x"')[1:],
    "a temperature that is a text": lambda: b'{"temperature": "hot", ' + saying(b'"x"')[1:],
    "a stream that is a text": lambda: b'{"stream": "yes", ' + saying(b'"x"')[1:],
    "metadata that is a list": lambda: b'{"metadata": [1], ' + saying(b'"x"')[1:],
}
"""JSON, but no request of any protocol."""

NO_ARGUMENTS: dict[str, Callable[[], bytes]] = {
    "deep arguments": lambda: called("[" * 100_000 + "]" * 100_000),
    "surrogate in arguments": lambda: called('{"x": "\\ud800"}'),
    "endless integer in arguments": lambda: called('{"x": ' + "9" * 5000 + "}"),
}
"""Chat Completions alone: JSON inside a text, which cannot be read."""
