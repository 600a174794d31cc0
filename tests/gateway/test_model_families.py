"""The same request to models of different families: each one's calls and thoughts come out alike."""

from __future__ import annotations

from pathlib import Path

from running_gateway import RunningGateway, running_gateway, user

from openclaw_rl.evals.byte_template import CHATML, byte_template
from openclaw_rl.evals.scripted_engine import ScriptedEngine

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
WITH_TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + CHATML
FAMILIES = {
    "hermes": ("{# <tool_call> #}", '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'),
    "qwen3-coder": (
        "{# <tool_call><function= #}",
        "<tool_call><function=read><parameter=path>\na\n</parameter></function></tool_call>",
    ),
    "mistral": ("{# [TOOL_CALLS] #}", '[TOOL_CALLS]read[ARGS]{"path": "a"}'),
    "llama3": ("{# <|python_tag|> #}", '<|python_tag|>{"name": "read", "parameters": {"path": "a"}}'),
    "plain": ("", '{"name": "read", "arguments": {"path": "a"}}'),
}
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<think>", "</think>", "<|other|>")


def serving(template: str) -> ScriptedEngine:
    return ScriptedEngine(byte_template(template, SPECIAL))


def test_special_tokens_that_mark_nothing_stay_hidden(tmp_path: Path) -> None:
    engine = serving("{# [TOOL_CALLS] #}" + WITH_TOOLS)
    with running_gateway(tmp_path, engine=engine) as gateway:
        gateway.engine.say("a<|other|>b[TOOL_CALLS]c", "a<|other|>b")
        assert gateway.chat(user("q")).reply["content"] == "abc"
        assert gateway.chat(user("q"), tools=TOOLS).reply["content"] == "ab"


def test_thoughts_between_special_tokens_are_split_off(tmp_path: Path) -> None:
    with running_gateway(tmp_path, engine=serving(CHATML)) as gateway:
        gateway.engine.say("<think>so</think>Paris.")
        reply = gateway.chat(user("q")).reply
        assert (reply["reasoning_content"], reply["content"]) == ("so", "Paris.")


def test_a_template_that_opens_the_thought_itself_is_understood(tmp_path: Path) -> None:
    opening = CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}")
    with running_gateway(tmp_path, engine=serving(opening)) as gateway:
        gateway.engine.say("so\n</think>\n\nParis.")
        first = gateway.chat(user("q"))
        assert (first.reply["reasoning_content"], first.reply["content"]) == ("so", "Paris.")
        assert gateway.chat(user("q"), first.reply, user("good")).parent_id == first.id


def test_a_template_without_a_tools_branch_is_taught_ours(gateway: RunningGateway) -> None:
    gateway.engine.say('<tool_call>{"name": "read", "arguments": {}}</tool_call>')
    turn = gateway.chat(user("go"), tools=TOOLS)
    assert '"name": "read"' in gateway.engine.template.decode(turn.prompt_ids)
    assert turn.finish_reason == "tool_calls"
