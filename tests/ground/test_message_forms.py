"""Templates that refuse what agents send: the same is said in a form that they accept."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_tokenizers import IM_END, byte_level, id_of

from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import ChatTemplate, ChatTemplateError

STRICT = r"""{% for tool in tools or [] %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}
{%- if message.tool_calls and message.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}
{{- '\n[' + message.role + '] ' + message.content }}
{%- for call in message.tool_calls or [] %} CALL {{ call.function.name }}#{{ call.id }}{% endfor %}
{%- if message.tool_call_id %} FOR {{ message.tool_call_id }}{% endif %}
{%- endfor %}"""
NO_SYSTEM = r"""{% for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}
{{- '\n[' + message.role + '] ' + message.content }}
{%- endfor %}"""


def says(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def call(name: str) -> dict[str, Any]:
    return {"id": f"call_{name}", "function": {"name": name, "arguments": "{}"}}


def render(text: str, *messages: Message) -> list[str]:
    rendered = ChatTemplate(byte_level(), text, {}, [id_of(IM_END)]).render(messages)
    return [line for line in rendered.splitlines() if line]


def test_a_late_system_message_is_said_by_the_user() -> None:
    assert render(STRICT, says("system", "a"), says("user", "b"), says("developer", "c")) == [
        "[system] a",
        "[user] b",
        "[user] c",
    ]


def test_calls_made_together_are_told_one_after_the_other_each_with_its_result() -> None:
    made = says("assistant", "Both.", tool_calls=[call("a"), call("b")])
    results = [says("tool", "A", tool_call_id="call_a"), says("tool", "B", tool_call_id="call_b")]
    assert render(STRICT, says("user", "go"), made, *results, says("user", "and?")) == [
        "[user] go",
        "[assistant] Both. CALL a#call_a",
        "[tool] A FOR call_a",
        "[assistant]  CALL b#call_b",
        "[tool] B FOR call_b",
        "[user] and?",
    ]


def test_a_template_without_a_system_role_gets_it_at_the_head_of_the_first_user_message() -> None:
    lines = render(NO_SYSTEM, says("system", "Be kind."), says("user", "hi"), says("user", "there"))
    assert lines == ["[user] Be kind.", "hi", "there"]


def test_messages_that_a_template_accepts_are_not_touched() -> None:
    lines = render(STRICT, says("user", "a"), says("user", "b"))
    assert lines == ["[user] a", "[user] b"]


def test_what_no_form_makes_acceptable_is_refused_for_the_first_reason() -> None:
    with pytest.raises(ChatTemplateError, match="one call"):
        render(STRICT, says("assistant", "", tool_calls=[call("a"), call("b")]))


def test_mistral_templates_get_ids_of_nine_characters_that_agree() -> None:
    text = STRICT.replace("CALL", "[TOOL_CALLS]")
    made = says("assistant", "", tool_calls=[{**call("a"), "id": "call_0123456789abcdef"}])
    lines = render(text, made, says("tool", "A", tool_call_id="call0123456789abcdef"))
    call_id = lines[0].rpartition("#")[2]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert lines[1] == f"[tool] A FOR {call_id}"
