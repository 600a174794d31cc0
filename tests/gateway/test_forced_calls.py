"""Forced calls and forms of replies: what the engine is asked to enforce, and what becomes of the turn.

The scripted engine compiles nothing: that replies keep to a grammar is shown in tests/policy,
tests/embedded and tests/processes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import BadRequestError
from running_gateway import MODEL, RunningGateway, user
from streams import joined, whole

from openclaw_rl.evals.scripted_engine import Script
from openclaw_rl.gateway import constraint
from openclaw_rl.model import Judgement, TurnState, Vote
from openclaw_rl.policy.engine import EngineBusyError, GrammarError

READ = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def function(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or READ}}


TOOLS = [function("read"), function("write")]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
FORCED = {"type": "function", "function": {"name": "read"}}


@pytest.fixture
def claude(gateway: RunningGateway) -> Iterator[Anthropic]:
    with Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as client:
        yield client


def asked(gateway: RunningGateway) -> str:
    """The grammar of the last request that the engine was given; it was compiled before."""
    grammar = gateway.engine.asked[-1][1].grammar
    assert not grammar or grammar in gateway.engine.prepared
    return grammar


def names_in(grammar: str) -> set[str]:
    return {name for name in ("read", "write") if rf"\"name\": \"{name}\"" in grammar}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"read", "write"}),
        (FORCED, {"read"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [FORCED]}}, {"read"}),
        ("auto", set()),
        ("none", set()),
        (None, set()),
    ],
)
def test_a_tool_choice_in_chat_becomes_a_grammar(
    gateway: RunningGateway, choice: Any, names: set[str]
) -> None:
    gateway.engine.say(CALL)
    fields = {} if choice is None else {"tool_choice": choice}
    reply = gateway.openai.chat.completions.create(
        model=MODEL, messages=[user("?")], tools=TOOLS, extra_body=fields
    )
    assert names_in(asked(gateway)) == names
    if names:
        (call,) = reply.choices[0].message.tool_calls or ()
        assert (call.function.name, reply.choices[0].finish_reason) == ("read", "tool_calls")


def test_tools_that_are_merely_allowed_are_the_only_ones_offered(gateway: RunningGateway) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FORCED]}}
    turn = gateway.chat(user("?"), tools=TOOLS, tool_choice=choice)
    assert [tool["function"]["name"] for tool in turn.tools] == ["read"]
    assert asked(gateway) == ""


@pytest.mark.parametrize(
    ("choice", "names"),
    [({"type": "any"}, {"read", "write"}), ({"type": "tool", "name": "write"}, {"write"})],
)
def test_a_tool_choice_in_messages(
    gateway: RunningGateway, claude: Anthropic, choice: Any, names: set[str]
) -> None:
    gateway.engine.say(CALL)
    tools: Any = [{"name": name, "input_schema": READ} for name in ("read", "write")]
    reply = claude.messages.create(
        model=MODEL,
        max_tokens=200,
        messages=[user("?")],
        tools=tools,
        tool_choice=choice,  # type: ignore[list-item]
    )
    assert names_in(asked(gateway)) == names
    assert (reply.content[0].type, reply.stop_reason) == ("tool_use", "tool_use")


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"read", "write"}),
        ({"type": "function", "name": "write"}, {"write"}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read"}]},
            {"read"},
        ),
    ],
)
def test_a_tool_choice_in_responses(gateway: RunningGateway, choice: Any, names: set[str]) -> None:
    gateway.engine.say(CALL)
    tools: Any = [{"type": "function", "name": name, "parameters": READ} for name in ("read", "write")]
    reply = gateway.openai.responses.create(model=MODEL, input="?", tools=tools, tool_choice=choice)
    assert names_in(asked(gateway)) == names
    assert [item.type for item in reply.output] == ["function_call"]


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("chat/completions", {"tool_choice": "required"}, "no tool was offered"),
        ("chat/completions", {"tools": TOOLS, "tool_choice": "sometimes"}, '"sometimes" is not understood'),
        ("chat/completions", {"tools": TOOLS, "tool_choice": {"type": "function"}}, "is not understood"),
        (
            "chat/completions",
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rm"}}},
            "no tool named 'rm' was offered",
        ),
        (
            "chat/completions",
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 5}}},
            "is not understood",
        ),
        ("responses", {"tool_choice": {"type": "function", "name": "rm"}}, "no tool named 'rm'"),
        ("responses", {"tool_choice": {"type": "web_search"}}, "is not understood"),
        ("messages", {"max_tokens": 9, "tool_choice": {"type": "tool", "name": "rm"}}, "no tool named 'rm'"),
        ("messages", {"max_tokens": 9, "tool_choice": {"type": "tool"}}, "is not understood"),
        ("messages", {"max_tokens": 9, "tool_choice": {"type": ["any"]}}, "is not understood"),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(
    gateway: RunningGateway, path: str, fields: dict[str, Any], says: str
) -> None:
    said = {"input": "?"} if path == "responses" else {"messages": [user("?")]}
    response = gateway.http.post(f"/v1/{path}", json={"model": MODEL, **said, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("tool_choice: ")
    assert says in response.json()["error"]["message"]
    assert not gateway.engine.asked


def test_a_turn_under_a_grammar_is_paired_and_judged_and_then_set_aside(gateway: RunningGateway) -> None:
    gateway.engine.say(CALL)
    turn = gateway.chat(user("?"), tools=TOOLS, tool_choice="required")
    assert turn.sampling.grammar == asked(gateway)
    result = {"role": "tool", "tool_call_id": turn.reply["tool_calls"][0]["id"], "content": "no such file"}
    gateway.chat(user("?"), turn.reply, result, tools=TOOLS)
    (state,) = gateway.store.conversations.next_states(turn.id)
    vote = Vote("evaluative", -1)
    gateway.store.learning.add_judgement(
        Judgement("judge_1", turn.id, state.id, "rules", -1, "Look first.", (vote,), time.time())
    )
    told = gateway.http.get("/v1/admin/turns").json()
    (found,) = [each for each in told["data"] if each["turn_id"] == turn.id]
    assert (found["state"], found["trainable"]) == ("set_aside", False)
    assert found["reason"].startswith("judged, but sampled under a grammar")
    assert gateway.store.conversations.reasons() == [(TurnState.SET_ASIDE, found["reason"], 1)]
    assert (told["next_update"]["collected"], told["counts"]["set_aside"]) == (0, 1)


def test_a_schema_that_cannot_be_compiled_loosens_a_forced_call_and_is_counted(
    gateway: RunningGateway,
) -> None:
    odd = {"type": "object", "properties": {"when": {"type": "string", "format": "moon-phase"}}}
    gateway.engine.uncompilable = "moon-phase"
    gateway.engine.say(CALL)
    turn = gateway.chat(user("?"), tools=[*TOOLS, function("plan", odd)], tool_choice="required")
    assert turn.finish_reason == "tool_calls"
    grammar = asked(gateway)
    assert "plan" in grammar
    assert "moon-phase" not in grammar
    assert '"path"' in grammar, "the other tools keep their schemas"
    assert gateway.http.get("/v1/admin/status").json()["loosened_schemas"] == 1
    gateway.engine.say("fine")
    assert gateway.chat(user("?"), tools=[function("plan", odd)]).reply["content"] == "fine"
    assert asked(gateway) == "", "a call that is not forced needs no grammar"


PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("fields", "enforced"),
    [
        ({"response_format": {"type": "json_object"}}, '%json {"type": "object"'),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}},
            '"required": ["name"]',
        ),
        ({"structured_outputs": {"json": PERSON}}, '"required": ["name"]'),
        ({"structured_outputs": {"json": json.dumps(PERSON)}}, '"required": ["name"]'),
        ({"structured_outputs": {"regex": "a/b|c"}}, r"/(?:a\/b|c)/"),
        ({"structured_outputs": {"choice": ["yes", 'n"o']}}, r'"yes" | "n\"o"'),
        ({"structured_outputs": {"grammar": 'start: "x"'}}, '%lark {\nstart: "x"\n}'),
        ({"response_format": {"type": "text"}}, ""),
        ({"structured_outputs": {}}, ""),
    ],
)
def test_a_form_of_the_reply_in_chat(gateway: RunningGateway, fields: dict[str, Any], enforced: str) -> None:
    gateway.openai.chat.completions.create(model=MODEL, messages=[user("?")], extra_body=fields)
    assert enforced in asked(gateway)
    assert bool(asked(gateway)) is bool(enforced)


def test_a_form_of_the_reply_in_responses_is_echoed(gateway: RunningGateway) -> None:
    form: Any = {"type": "json_schema", "name": "p", "schema": PERSON, "strict": True}
    reply = gateway.openai.responses.create(model=MODEL, input="?", text={"format": form})
    assert '"required": ["name"]' in asked(gateway)
    assert reply.text is not None
    assert reply.text.format is not None
    assert reply.text.format.type == "json_schema"


def test_a_call_that_is_forced_wins_over_the_form_of_an_answer(gateway: RunningGateway) -> None:
    """The Agents SDK sends the form of its last answer with every request."""
    gateway.engine.say(CALL)
    turn = gateway.chat(
        user("?"), tools=TOOLS, tool_choice="required", response_format={"type": "json_object"}
    )
    assert names_in(asked(gateway)) == {"read", "write"}
    assert "answer" not in asked(gateway)
    assert turn.finish_reason == "tool_calls"


def test_with_a_form_tools_may_be_called_all_the_same(gateway: RunningGateway) -> None:
    gateway.engine.say(CALL)
    form = {"type": "json_object"}
    turn = gateway.chat(user("?"), tools=TOOLS, response_format=form)
    assert names_in(asked(gateway)) == {"read", "write"}
    assert "answer" in asked(gateway)
    assert turn.finish_reason == "tool_calls"


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_part_named(
    gateway: RunningGateway, strict: bool | None
) -> None:
    gateway.engine.uncompilable = "moon-phase"
    schema = {"properties": {"a": {"type": "string"}, "b": {"items": {"format": "moon-phase"}}}}
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema, "strict": strict}}
    with pytest.raises(BadRequestError, match="moon-phase is not known") as refused:
        gateway.openai.chat.completions.create(
            model=MODEL, messages=[user("?")], extra_body={"response_format": form}
        )
    assert refused.value.param == "response_format.json_schema.schema.properties.b.items"
    assert not gateway.engine.asked


class SlowToCompile:
    """Compiles nothing with `faulty` in it, and takes its time."""

    def __init__(self, faulty: str) -> None:
        self.faulty = faulty
        self.asked = 0

    async def __call__(self, grammar: str) -> object:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.faulty in grammar:
            raise GrammarError("it is hard")
        return grammar


def test_looking_for_the_part_at_fault_has_an_end(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint, "LOOKING_SECONDS", 0.35)
    slow = SlowToCompile("moon-phase")
    monkeypatch.setattr(gateway.engine, "prepare_grammar", slow)
    last = {"format": "moon-phase"}
    schema = {"properties": {f"p{place}": {"type": "string"} for place in range(100)} | {"last": last}}
    response = gateway.post([user("?")], structured_outputs={"json": schema})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "structured_outputs.json")
    assert "it is hard" in error["message"]
    assert slow.asked <= 6


def test_looking_for_the_tools_at_fault_has_an_end_and_the_rest_take_any_arguments(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint, "LOOKING_SECONDS", 0.35)
    slow = SlowToCompile("moon-phase")
    monkeypatch.setattr(gateway.engine, "prepare_grammar", slow)
    odd = {"type": "object", "properties": {"when": {"type": "string", "format": "moon-phase"}}}
    tools = [function(f"plan{place}", odd) for place in range(12)]
    gateway.engine.say(CALL)
    response = gateway.post([user("?")], tools=tools, tool_choice="required")
    assert response.status_code == 200, response.text
    assert "moon-phase" not in gateway.engine.asked[-1][1].grammar
    assert slow.asked <= 7


def test_while_others_grammars_are_compiled_the_answer_is_busy(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(grammar: str) -> object:
        raise EngineBusyError("64 grammars wait to be compiled already; try again")

    monkeypatch.setattr(gateway.engine, "prepare_grammar", full)
    for fields in ({"structured_outputs": {"json": PERSON}}, {"tools": TOOLS, "tool_choice": "required"}):
        response = gateway.post([user("?")], **fields)
        assert response.status_code == 429
        assert "wait to be compiled" in response.json()["error"]["message"]


def test_a_schema_that_is_not_strict_may_be_kept_in_part(gateway: RunningGateway) -> None:
    gateway.engine.uncompilable = '"lenient": false'
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": False}}
    assert gateway.post([user("?")], response_format=form).status_code == 200
    assert '"lenient": true' in asked(gateway)
    form["json_schema"]["strict"] = True  # type: ignore[index]
    assert gateway.post([user("?")], response_format=form).status_code == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": 5}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": PERSON, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs.grammar"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs.regex",
        ),
    ],
)
def test_forms_that_cannot_be_read_or_exclude_each_other_are_refused(
    gateway: RunningGateway, fields: dict[str, Any], param: str
) -> None:
    response = gateway.post([user("?")], **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_top_logprobs_are_given_in_chat_and_a_stream_equals_the_plain_body(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("hé"), Script("hé"))
    body = gateway.post([user("?")], logprobs=True, top_logprobs=2).json()
    with gateway.stream([user("?")], logprobs=True, top_logprobs=2) as (_, chunks):
        assert joined(list(chunks)) == whole(body)
    tokens = body["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in tokens] == [2] * len(tokens)
    assert tokens[0]["top_logprobs"][0] == {
        "token": "h", "logprob": pytest.approx(tokens[0]["logprob"]), "bytes": [104]
    }  # fmt: skip
    assert tokens[0]["top_logprobs"][1]["logprob"] < tokens[0]["logprob"]


def test_top_logprobs_in_responses_are_told_with_the_text(gateway: RunningGateway) -> None:
    gateway.engine.say(Script("yes no"), Script("yes no"), Script("yes no"))
    asked_for: Any = {"model": MODEL, "input": "?", "top_logprobs": 1}
    reply = gateway.openai.responses.create(**asked_for)
    (content,) = reply.output[0].content  # type: ignore[union-attr]
    assert "".join(token.token for token in content.logprobs) == "yes no"  # type: ignore[union-attr]
    assert [len(token.top_logprobs) for token in content.logprobs] == [1] * 6  # type: ignore[union-attr]
    streamed = list(gateway.openai.responses.create(**asked_for, stream=True))
    told = [token for event in streamed if event.type.endswith("text.delta") for token in event.logprobs]
    assert "".join(token.token for token in told) == "yes no"
    (done,) = [event for event in streamed if event.type == "response.completed"]
    assert done.response.output[0].content[0].logprobs == content.logprobs
    without = gateway.openai.responses.create(model=MODEL, input="?")
    assert without.output[0].content[0].logprobs == []  # type: ignore[union-attr]
