"""The forms that a client may give an answer, and a call beside them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from grammar_walks import Grammar
from jsonschema import Draft202012Validator

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from openclaw_rl.evals.byte_template import CHATML, byte_template
from openclaw_rl.policy.grammars import ReplyForm, grammar

TEMPLATE = byte_template()
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "tags": {"type": "array", "items": {"enum": ["é", "b"]}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def answers(kind: Any, value: Any) -> Grammar:
    rule = ReplyForm(kind, value, "response_format").rule
    return Grammar(TEMPLATE, grammar(TEMPLATE, inside_thought=False, answer_rule=rule))


def test_a_schema_is_kept_whatever_the_spacing() -> None:
    allowed = answers("json", PERSON)
    for seed in range(8):
        Draft202012Validator(PERSON).validate(json.loads(allowed.walk(seed)))
    assert allowed.allows(json.dumps({"name": "A", "tags": ["b"]}, indent=4))
    assert allowed.allows('{"name":"A"}')
    assert not allowed.allows('{"name":' + " " * 100 + '"A"}'), "no endless white space"
    assert not allowed.allows('{"name": "A", "age": 1}')


def test_a_schema_cannot_change_the_options_of_the_library() -> None:
    schema = {"x-guidance": {"lenient": True}, "type": "object", "properties": {"a": {"not": {}}}}
    with pytest.raises(AssertionError, match="not"):
        _ = answers("json", schema).matcher


@pytest.mark.parametrize("pattern", ["(yes|no)/[0-9]{2}", r"a\/b\\", "x\ny", "a|b"])
def test_a_regular_expression_is_kept(pattern: str) -> None:
    allowed = answers("regex", pattern)
    assert all(re.fullmatch(pattern, allowed.walk(seed)) for seed in range(8))


def test_one_of_several_texts() -> None:
    texts = ['say "hi"', "b/c", "é\n🙂"]
    allowed = answers("choice", texts)
    assert {allowed.walk(seed) for seed in range(30)} == set(texts)
    assert not allowed.allows("b")


def test_a_grammar_of_the_clients_own_stays_apart_from_ours() -> None:
    allowed = answers("lark", 'start: answer "," call\nanswer: /[ab]}/\ncall: "{"')
    assert allowed.allows("a},{")
    assert not allowed.allows("c},{")


def test_with_tools_the_answer_may_be_a_call() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    rule = ReplyForm("json", PERSON, "response_format").rule
    allowed = Grammar(TEMPLATE, grammar(TEMPLATE, inside_thought=False, answer_rule=rule, tools=tools))
    assert allowed.allows('{"name": "A"}')
    assert allowed.allows('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert not allowed.allows("Now.")


def test_an_answer_may_follow_a_thought() -> None:
    template = byte_template("{# <think> #}" + CHATML, ("<think>", "</think>"))
    rule = ReplyForm("choice", ["yes"], "structured_outputs.choice").rule
    allowed = Grammar(template, grammar(template, inside_thought=True, answer_rule=rule))
    assert allowed.allows("maybe no\n</think>\n\nyes")
    assert not allowed.allows("yes")
