"""The judge without a model: rules for tool results, repeated calls and user replies.

Deterministic, and fast enough to judge as turns come. It gives one evaluative and one directive vote;
each vote's `raw` names the rule that fired and the words it rests on. Knows no store and no settings.
"""

from __future__ import annotations

import re

from openclaw_rl.judge.finding import Finding
from openclaw_rl.judge.tool_results import read_result
from openclaw_rl.judge.transcript import ToolCall, calls_of, is_conversation, request_of, text_of, words_of
from openclaw_rl.judge.user_replies import read_edit, read_reply
from openclaw_rl.judge.verdict import unread
from openclaw_rl.model import Message, NextState, Turn, Vote

_SHOWING_COMMAND = re.compile(
    r"^\{\"(?:command|cmd|script|code)\": \"\s*(cat|head|tail|less|grep|rg|find|ls|awk|sed -n|diff|jq"
    r"|git (?:log|show|diff|blame|grep|status))\b"
)


class RulesJudge:
    """Judges by structure first, then by the acts of the user's sentences, in English and Chinese."""

    name = "rules"

    async def judge(self, turn: Turn, next_state: NextState) -> tuple[Vote, ...]:
        finding = find(turn, next_state)
        if finding is None:
            return (unread("evaluative", "", "the next state holds no message"),)
        raw = f"rule: {finding.rule}"
        if finding.evidence:
            raw += f"; sentence: {finding.evidence}"
        return (
            Vote("evaluative", finding.score, raw=raw),
            Vote("directive", 1 if finding.hint else -1, hint=finding.hint, raw=raw),
        )

    async def close(self) -> None:
        """Nothing is held open."""


def find(turn: Turn, next_state: NextState) -> Finding | None:
    """What the rules find, or None when there is nothing to read."""
    messages = [message for message in next_state.messages if is_conversation(message)]
    spoken = [message for message in messages if message.get("role") == "user"]
    results = [message for message in messages if message.get("role") != "user"]
    if next_state.source == "outcome":
        spoken, results = [], messages
    words = "\n".join(words_of(message) for message in spoken)
    if next_state.source == "edit":
        return read_edit(words, request_of(turn))
    by_user = read_reply(words, request_of(turn), words_of(turn.reply)) if spoken else None
    by_tools = _find_in_results(turn, results) if results else None
    if by_user is None or by_tools is None:
        return by_user or by_tools
    # The user spoke beside tool results: a failure stands, otherwise clear words of the user decide.
    clear = by_user.score != 0 and by_user.rule != "moved on"
    return by_user if clear and by_tools.score != -1 else by_tools


def _find_in_results(turn: Turn, results: list[Message]) -> Finding:
    names = _tool_names(turn)
    findings = [
        read_result(text_of(result), names.get(_bare_id(result.get("tool_call_id"))) or _at(turn, position))
        for position, result in enumerate(results)
    ]
    worst = min(findings, key=lambda finding: finding.score)
    if worst.score == -1:
        return worst
    if _repeats_a_call(turn):
        return Finding(0, "repeated call")
    return max(findings, key=lambda finding: finding.score)


def _repeats_a_call(turn: Turn) -> bool:
    """Whether the turn made a call that was already made, with equal arguments, and got its result.

    A useful call is +1; asking again for what is already known must not be, or loops would be trained.
    """
    answered: set[tuple[str, str]] = set()
    for message, following in zip(turn.messages, turn.messages[1:], strict=False):
        if following.get("role") == "tool":
            answered.update(call.identity for call in calls_of(message))
    return any(call.identity in answered for call in calls_of(turn.reply))


def _tool_names(turn: Turn) -> dict[str, str]:
    return {_bare_id(call.id): _name(call) for call in calls_of(turn.reply)}


def _at(turn: Turn, position: int) -> str:
    calls = calls_of(turn.reply)
    return _name(calls[position]) if position < len(calls) else ""


def _name(call: ToolCall) -> str:
    """The tool's name; for a shell that shows something, with the program that does."""
    shows = _SHOWING_COMMAND.search(call.arguments)
    return f"{shows[1]} ({call.name})" if shows else call.name


def _bare_id(call_id: object) -> str:
    """OpenClaw sends a call's id back without its underscores."""
    return str(call_id or "").replace("_", "")
