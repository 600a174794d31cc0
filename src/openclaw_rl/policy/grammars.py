"""Grammars for constrained decoding: what a reply must look like, as llguidance's Lark text.

A reply is a thought, where the model may have one, and then a call or an answer of a given form. How a call
is written is in `call_grammars`. Text alone: engines compile it. Knows no engine and no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from openclaw_rl.model import Tool
from openclaw_rl.policy.call_grammars import Exactness, call_rules
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.lark import json_value, literal, mark, regex
from openclaw_rl.policy.reply import END_THINK, THINK

_ANSWER = {"whitespace_pattern": r"[ \n\r\t]{1,40}"}
"""Room to indent, but no endless white space, which small models fall into."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """A form that a client gives for the answer."""

    kind: Literal["json", "regex", "choice", "lark"]
    value: Any
    """A JSON Schema, a regular expression, a list of texts, or a grammar whose first rule is `start`."""
    field: str
    """The field of the request that it came in."""
    strict: bool = True
    """Otherwise what the library cannot enforce of a schema is left out."""

    @property
    def rule(self) -> str:
        """As one rule, `answer`. A schema is taken whole; see `lenient_rule`."""
        return f"answer: {self._body(lenient=False)}\n"

    @property
    def lenient_rule(self) -> str:
        """The same without the keywords of a schema that the library does not know."""
        return f"answer: {self._body(lenient=True)}\n"

    def _body(self, *, lenient: bool) -> str:
        if self.kind == "json":
            return json_value(self.value, {**_ANSWER, "lenient": lenient})
        if self.kind == "choice":
            return " | ".join(literal(text) for text in self.value)
        if self.kind == "regex":
            return regex(self.value)
        return f"%lark {{\n{self.value}\n}}"


def grammar(
    template: ChatTemplate,
    *,
    inside_thought: bool,
    answer_rule: str = "",
    tools: Sequence[Tool] = (),
    exactness: Mapping[str, Exactness] | None = None,
) -> str:
    """What a reply must match: one call of one of `tools`, or the answer that `answer_rule` tells.

    `exactness` says how much of a tool's schema counts; all of it where its name is not in there.
    """
    rules = [answer_rule] if answer_rule else []
    if tools:
        rules.append(call_rules(template, tools, exactness or {}))
    body = " | ".join(["answer"] * bool(answer_rule) + ["call"] * bool(tools))
    if inside_thought:
        return "".join([f"start: thinking ({body})\n", _thinking(template), *rules])
    if template.thinks:  # such a model may begin a thought itself
        thought = f"({mark(template, THINK)} thinking)?"
        return "".join([f"start: {thought} ({body})\n", _thinking(template), *rules])
    return "".join([f"start: {body}\n", *rules])


def _thinking(template: ChatTemplate) -> str:
    """The rule for the rest of a thought, with its end and the white space after."""
    closing = mark(template, END_THINK)
    if closing.startswith("<"):  # one token, which no text can hold
        return f"thinking: /(?s:.*)/ {closing} /[ \\n]{{0,4}}/\n"
    return f"thinking: thought /[ \\n]{{0,4}}/\nthought[lazy]: {regex(f'(?s:.*){END_THINK}')}\n"
