"""Faults 1 to 16 of docs/faults.md: what agents send, and what servers of this kind get wrong about it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openclaw_texts import internal_context, person
from running_gateway import MODEL, RunningGateway, assistant, eventually, running_gateway, user

from openclaw_rl.evals.byte_template import CHATML, byte_template
from openclaw_rl.evals.scripted_engine import Script, ScriptedEngine
from openclaw_rl.gateway.protocols.chat import ChatRequest
from openclaw_rl.model import TurnState
from openclaw_rl.policy.message_forms import text_of

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
READ = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
]
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
ARGUMENTS_BY_NAME = (
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{% for name, value in call.function.arguments|items %} {{ name }}={{ value }}{% endfor %}"
    "{% endfor %}\n{% endfor %}"
)
"""Reads a call's arguments as a mapping, as the templates of several families do."""
SCHEMA_BY_FIELD = (
    "{% for tool in tools or [] %}{% for name, field in tool.function.parameters.properties.items() %}"
    "{{ name }}: {{ field.type | upper }} {{ field.description | trim }}\n"
    "{% endfor %}{% endfor %}" + CHATML
)
"""Reads every property of a tool's schema and expects each to have a type."""


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}


def ask(gateway: RunningGateway, path: str, **fields: Any) -> httpx2.Response:
    """One question in any protocol; each leaves alone what it does not know."""
    body = {"model": MODEL, "messages": [user("q")], "input": "q", "max_tokens": 300, **fields}
    return gateway.http.post(path, json=body)


def serving(tmp_path: Path, template: str) -> AbstractContextManager[RunningGateway]:
    return running_gateway(tmp_path, engine=ScriptedEngine(byte_template(template, SPECIAL), 16_384))


def test_fault_01_a_developer_message_is_a_system_message(gateway: RunningGateway) -> None:
    """Servers refuse the role `developer`; here its prompt and its conversation are those of `system`."""
    asked = [gateway.chat(says(role, "Be brief."), user("hi")) for role in ("developer", "system")]
    assert asked[0].prompt_ids == asked[1].prompt_ids
    after = gateway.chat(says("developer", "Be brief."), user("hi"), assistant("fine"), user("no"))
    assert after.parent_id == asked[1].id


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True},
        {"store": None},
        {"metadata": {"a": "b"}},
        {"prompt_cache_key": "k"},
        {"reasoning_effort": "high"},
        {"parallel_tool_calls": True},
        {"rl_tag": {"deep": [1]}},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "x": 1}}]},
    ],
)
def test_fault_02_unknown_fields_are_ignored(gateway: RunningGateway, fields: dict[str, Any]) -> None:
    """One field that a server does not know makes it refuse the request; here the field is ignored."""
    gateway.chat(user("hi"), **fields)


def test_fault_02_ignored_fields_are_counted(gateway: RunningGateway) -> None:
    """What is ignored in silence is never found; here it is counted by name."""
    gateway.chat(user("hi"), store=True, reasoning_effort="high", rl_tag={"deep": [1]})
    gateway.chat(user("hi"), store=None)
    eventually(lambda: gateway.store.reports()["server"].detail.get("ignored_fields") == 4)


def test_fault_03_of_two_names_for_the_budget_the_smaller_counts(gateway: RunningGateway) -> None:
    """Servers know one name of the output limit and refuse the other; here both are read."""
    for fields, budget in (
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 3}, 3),
    ):
        assert gateway.chat(user("hi"), **fields).sampling.max_tokens == budget
    refused = gateway.post([user("hi")], max_completion_tokens=0)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("max_completion_tokens: ")


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_fault_04_content_parts_are_the_text_they_hold_for_every_role(
    gateway: RunningGateway, role: str
) -> None:
    """Servers take content as a list for users alone, or not at all; here every role may send it."""
    more = {"tool_call_id": "call_1"} if role == "tool" else {}
    forms = ("one\ntwo", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])
    asked = [gateway.chat(user("a"), says(role, form, **more), user("b")) for form in forms]
    assert asked[0].prompt_ids == asked[1].prompt_ids


def test_fault_04_null_content_is_no_content(gateway: RunningGateway) -> None:
    """Null content beside calls crashes templates; here null, empty and absent are one prompt."""
    forms: list[dict[str, Any]] = [{"content": None}, {"content": ""}, {}]
    asked = [
        gateway.chat(user("a"), {"role": "assistant", **form, "tool_calls": [called("{}")]}, user("b"))
        for form in forms
    ]
    assert len({turn.prompt_ids for turn in asked}) == 1


def test_fault_04_a_part_that_is_no_text_is_refused_in_words(gateway: RunningGateway) -> None:
    """An image crashes the template of a text model; here the request is refused and says why."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    response = gateway.post([user("see"), says("user", [image])])
    assert response.status_code == 400
    assert "image_url" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "arguments", ['{"path": "a"}', {"path": "a"}, "", None, "null", '{"path": ', "[1]", "not JSON", '"x"']
)
def test_fault_05_replayed_tool_calls_do_not_crash_the_template(tmp_path: Path, arguments: Any) -> None:
    """Arguments come back as a text and the template wants a mapping, so turn 2 fails; here none does."""
    with serving(tmp_path, ARGUMENTS_BY_NAME) as gateway:
        turn = gateway.chat(
            user("read a"),
            says("assistant", None, tool_calls=[called(arguments)]),
            says("tool", "text of a", tool_call_id="call_1"),
            tools=TOOLS,
        )
        prompt = gateway.engine.template.decode(turn.prompt_ids)
        assert "text of a" in prompt
        if arguments in ('{"path": "a"}', {"path": "a"}):
            assert " path=a" in prompt


@pytest.mark.parametrize("template", [CHATML, SCHEMA_BY_FIELD], ids=["ours", "by field"])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        None,
        {"type": "object"},
        {"type": "object", "properties": None},
        {"type": "object", "properties": {"a": {}, "b": {"description": "no type"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "[a-z]{3"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, None]}}},
        {"type": "object", "properties": {"a": {"type": ["integer", "null"], "default": None}}},
        {"type": "object", "properties": {"a": True}},
        True,
    ],
)
def test_fault_06_a_tool_may_have_any_schema(tmp_path: Path, parameters: Any, template: str) -> None:
    """A pattern or a property without a type breaks a server; here any schema is offered as it is."""
    tool = {"type": "function", "function": {"name": "read", "parameters": parameters, "strict": True}}
    many = [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": parameters}} for n in range(30)
    ]
    with serving(tmp_path, template) as gateway:
        gateway.engine.say('{"name": "read", "arguments": {}}' if template is SCHEMA_BY_FIELD else READ)
        turn = gateway.chat(user("go"), tools=[tool, *many])
        assert turn.tools[0] == tool
        assert turn.reply["tool_calls"][0]["function"]["name"] == "read"


def test_fault_07_a_call_that_the_model_writes_as_text_becomes_a_call(gateway: RunningGateway) -> None:
    """The call arrives as plain text and no client executes it; here it is a call and says so."""
    gateway.engine.say(f"Looking.\n{READ}")
    choice = gateway.post([user("read a")], tools=TOOLS).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "read", "arguments": '{"path": "a"}'}
    assert choice["message"]["content"] == "Looking."


def test_fault_07_a_call_that_cannot_be_read_stays_visible_and_is_marked_and_counted(
    gateway: RunningGateway,
) -> None:
    """A broken call is swallowed and nobody knows; here it stays text, and its turn carries a mark."""
    broken = '<tool_call>{"name": "read", "arguments": {"path": }</tool_call>'
    gateway.engine.say(broken, "words")
    turn = gateway.chat(user("read a"), tools=TOOLS)
    assert turn.reply == {"role": "assistant", "content": broken, "unread_tool_calls": 1}
    assert turn.state is TurnState.WAITING_NEXT_STATE
    assert gateway.chat(user("read a"), assistant(broken), user("no"), tools=TOOLS).parent_id == turn.id
    eventually(lambda: gateway.store.reports()["server"].detail.get("unread_tool_calls") == 1)


WITH_TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + CHATML
FAMILIES = {
    "hermes": ("{# <tool_call> #}", READ),
    "qwen3-coder": (
        "{# <tool_call><function= #}",
        "<tool_call><function=read><parameter=path>\na\n</parameter></function></tool_call>",
    ),
    "mistral": ("{# [TOOL_CALLS] #}", '[TOOL_CALLS]read[ARGS]{"path": "a"}'),
    "llama3": ("{# <|python_tag|> #}", '<|python_tag|>{"name": "read", "parameters": {"path": "a"}}'),
    "plain": ("", '{"name": "read", "arguments": {"path": "a"}}'),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_fault_08_every_familys_calls_become_structured_calls(tmp_path: Path, family: str) -> None:
    """A parser of another family finds no call and every episode fails; here the template decides."""
    mark, reply = FAMILIES[family]
    with serving(tmp_path, mark + WITH_TOOLS) as gateway:
        template = gateway.engine.template
        assert template.dialect.name == family
        gateway.engine.say(reply)
        turn = gateway.chat(user("read a"), tools=TOOLS)
        (call,) = turn.reply["tool_calls"]
        assert call["function"] == {"name": "read", "arguments": '{"path": "a"}'}
        assert (turn.reply["content"], turn.finish_reason) == (None, "tool_calls")
        assert template.decode(turn.response_ids[:-1], skip_special_tokens=False) == reply


def test_fault_08_calls_of_a_family_that_is_not_the_models_are_counted(tmp_path: Path) -> None:
    """Zero calls are parsed and nobody is told; here the status counts what looked like one."""
    with serving(tmp_path, FAMILIES["hermes"][0] + WITH_TOOLS) as gateway:
        gateway.engine.say(FAMILIES["qwen3-coder"][1])
        gateway.chat(user("read a"), tools=TOOLS)
        assert gateway.http.get("/v1/admin/status").json()["unread_tool_calls"] == 1


def test_fault_08_with_tool_choice_none_tools_are_neither_offered_nor_parsed(
    gateway: RunningGateway,
) -> None:
    """The parser runs though the client wants no call; here neither prompt nor reply knows of tools."""
    gateway.engine.say(READ, "again")
    turn = gateway.chat(user("?"), tools=TOOLS, tool_choice="none")
    assert turn.reply == {"role": "assistant", "content": READ}
    assert turn.tools == ()
    assert turn.prompt_ids == gateway.chat(user("?")).prompt_ids


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_fault_09_every_protocol_that_is_served_parses_calls(gateway: RunningGateway, path: str) -> None:
    """A second endpoint that skips the parser is worse than none; here all are one code path."""
    own_form = {
        CHAT: TOOLS[0],
        MESSAGES: {"name": "read", "input_schema": {"type": "object"}},
        RESPONSES: {"type": "function", "name": "read", "parameters": {"type": "object"}},
    }
    gateway.engine.say(READ)
    response = ask(gateway, path, tools=[own_form[path]])
    assert response.status_code == 200, response.text
    turn = gateway.turn(response.headers["x-turn-id"])
    assert turn.reply["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a"}'}
    assert turn.reply["tool_calls"][0]["id"] in response.text
    assert "<tool_call>" not in response.text


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/audio/speech", "/api/chat"])
def test_fault_09_what_is_not_served_is_not_found(gateway: RunningGateway, path: str) -> None:
    """A half-made endpoint answers a client's probe; here what is not whole is 404, in words."""
    response = ask(gateway, path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_fault_10_an_overflow_is_refused_with_both_numbers_and_leaves_no_turn(
    gateway: RunningGateway, path: str, stream: bool
) -> None:
    """Clients compact when they know the error; here it has OpenAI's code and sentence, and never cuts."""
    fitting = gateway.chat(user("x" * 3000))
    tokens = len(fitting.prompt_ids) + 2000
    response = ask(gateway, path, messages=[user("x" * 5000)], input="x" * 5000, stream=stream)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert error["message"] == (
        f"This model's maximum context length is 4096 tokens. However, your messages resulted in {tokens} "
        f"tokens. Please reduce the length of the messages."
    )
    assert len(gateway.store.conversations.turns()) == 1


@pytest.mark.parametrize("asked", [{}, {"max_tokens": 10**9}, {"max_completion_tokens": 4096}])
def test_fault_11_the_budget_of_a_reply_is_what_the_context_leaves(
    gateway: RunningGateway, asked: dict[str, int]
) -> None:
    """No output limit is read as the whole window, so all overflows; here it is what is left."""
    turn = gateway.chat(user("x" * 3800), **asked)
    room = gateway.engine.context_length - len(turn.prompt_ids)
    assert room < 512
    assert turn.sampling.max_tokens == room


@pytest.mark.parametrize("length", [1234, 200_000])
def test_fault_12_models_tell_their_context_window(tmp_path: Path, length: int) -> None:
    """Clients guess a window that nobody tells them; here it is the engine's own, and published."""
    with running_gateway(tmp_path, engine=ScriptedEngine(byte_template(), length)) as gateway:
        (listed,) = gateway.http.get("/v1/models").json()["data"]
        assert listed["context_length"] == listed["max_model_len"] == length
        assert gateway.http.get("/v1/admin/status").json()["context_length"] == length


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openclaw_rl", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_fault_13_the_doctor_asks_the_address_that_it_is_given_and_says_what_it_met(
    gateway: RunningGateway,
) -> None:
    """A set-up points somewhere else and nothing tells; here real requests are made, and shown."""
    gateway.engine.say("one", "two", READ)
    found = doctor("--url", f"{gateway.url}/v1")
    checks = {line.split(maxsplit=1)[1].split(":")[0]: line.split()[0] for line in found.stdout.splitlines()}
    for asked in ("plain request", "streamed request"):
        assert checks[asked] == "ok", found.stdout
    assert "tool request" in checks
    assert len(gateway.engine.asked) == 3
    assert gateway.url in found.stdout


def test_fault_13_an_empty_address_is_refused() -> None:
    """An empty answer becomes an address that nobody chose; here it is an error."""
    found = doctor("--url", "")
    assert found.returncode == 2
    assert "--url" in found.stderr


ODD: list[Any] = [None, 0, -1, [], {}, False, ""]


@pytest.mark.parametrize("field", sorted(ChatRequest.model_fields.keys() - {"model", "messages"}))
def test_fault_14_odd_optional_values_are_answered_or_refused_by_name(
    gateway: RunningGateway, field: str
) -> None:
    """An optional field that is null beside another turns 200 into 500; here no value of any does."""
    for value in ODD:
        for more in ({"logprobs": True}, {"stream": True}):
            response = gateway.post([user("hi")], **{**more, field: value})
            assert response.status_code in (200, 400), (field, value, response.text)
            if response.status_code == 400:
                named = response.json()["error"]["param"]
                assert named.startswith(field), (field, value, named)
                continue
            for turn_id in response.headers["x-turn-id"].split(", "):
                turn = gateway.turn(turn_id)
                assert len(turn.logprobs) == len(turn.response_ids) > 0, "captured whatever was asked"


def test_fault_15_the_model_sees_what_the_agent_sent_and_nothing_else(gateway: RunningGateway) -> None:
    """A proxy adds to and takes from an agent's messages, and its plug-ins break; here all pass unchanged."""
    gateway.engine.say("the answer", "sorry")
    first = [
        says("system", "You are an agent.\n"),
        person("hi", key="agent:main:a"),
        internal_context(),
    ]
    later = [*first[:2], assistant("the answer"), person("no"), internal_context("one")]
    for sent in (first, later):
        turn = gateway.chat(*sent)
        assert list(turn.messages) == sent
        spelled = [f"<|im_start|>{m['role']}\n{text_of(m['content'])}<|im_end|>\n" for m in sent]
        prompt = gateway.engine.template.decode(turn.prompt_ids, skip_special_tokens=False)
        assert prompt == "".join(spelled) + "<|im_start|>assistant\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_fault_16_a_failure_is_told_in_every_dialect_without_a_stack_trace(
    gateway: RunningGateway, path: str, stream: bool
) -> None:
    """The second dialect answers a failure behind it with a stack trace; here each has its own error."""
    gateway.engine.say(Script("secret words", fails_after=3, crashes=True))
    response = ask(gateway, path, stream=stream)
    assert "Traceback" not in response.text
    assert "KeyError" not in response.text
    assert '"error"' in response.text
    if not stream:
        assert response.status_code == 500
        assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("/v1/v1/messages", MESSAGES),
        ("/messages", MESSAGES),
        ("/responses", RESPONSES),
        ("/v1/chat/completions/", CHAT),
    ],
)
def test_fault_16_a_base_url_with_too_much_or_too_little_is_told_what_is_meant(
    gateway: RunningGateway, asked: str, meant: str
) -> None:
    """With or without /v1, a wrong base URL is a bare 404; here the right route is named."""
    response = ask(gateway, asked)
    assert response.status_code == 404
    assert f" {meant} " in response.json()["error"]["message"]
