"""Pieces of llguidance's Lark text: literals, regular expressions, JSON values, special tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from openclaw_rl.policy.chat_template import ChatTemplate

_OPTIONS = "x-guidance"
"""Where llguidance looks for its options in a schema."""


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def regex(pattern: str) -> str:
    """A pattern in slashes, whatever slashes and line ends it has itself."""
    written, escaped = [], False
    for char in pattern:
        if escaped or char not in "/\n":
            written.append("n" if escaped and char == "\n" else char)
        else:
            written.append("\\/" if char == "/" else "\\n")
        escaped = char == "\\" and not escaped
    return f"/(?:{''.join(written)})/"


def json_value(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """A JSON value that is valid under a schema; `options` are llguidance's, on spacing and leniency."""
    own = {name: value for name, value in schema.items() if name != _OPTIONS}
    return f"%json {json.dumps({**own, _OPTIONS: dict(options)}, ensure_ascii=False)}"


def mark(template: ChatTemplate, text: str) -> str:
    """A tag of the dialect: as the one token that it is in the model's vocabulary, else as its text."""
    token_id = template.tokenizer.token_to_id(text)
    return literal(text) if token_id is None else f"<[{token_id}]>"
