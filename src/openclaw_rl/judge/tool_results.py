"""What a tool's result says of the call: structure first (JSON, exit codes, test verdicts), then error lines.

The tool's words never praise and never blame: only signs of failure count, in places where programs put
them, so that a log or a source file that merely mentions errors is still a success.
"""

from __future__ import annotations

import json
import re

from openclaw_rl.judge.finding import Finding

LONGEST_EVIDENCE = 200
"""Characters of a tool's own words that may go into a hint."""
_HEAD, _TAIL = 5, 25
"""Lines at the start and the end of an output where error lines are looked for."""

_READERS = re.compile(
    r"^(read|cat|open|view|get|fetch|grep|search|find|list|ls|web|browse)|(_|\b)(read|search|fetch)", re.I
)
_EXIT = re.compile(
    r"(?:\bexit(?:ed)?(?: with)?(?: (?:code|status))|\bexit_?code|\breturn ?code|non-zero exit status"
    r"|退出码)\W{0,3}(-?\d+)",
    re.I,
)
_FAILED_TESTS = re.compile(
    r"\b[1-9]\d* (?:failed|failures?|failing)\b|\bFAILED \((?:failures|errors)=|\btest result: FAILED"
    r"|^--- FAIL\b|^FAIL\b|\b(?:failures|errors): *[1-9]",
    re.M,
)
_TEST_DETAIL = re.compile(r"^(?:FAILED|ERROR|E  +|--- FAIL:|FAIL:|✕|not ok)[ \t].*", re.M)
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Warning|Exit)\b(?::.*)?$")
_TRACEBACK = "Traceback (most recent call last)"
_ERROR_LINE = re.compile(
    r"^\W{0,4}(?:\w+ )?(?:error|fatal|exception|panic|failure|failed)(?:\[\w+\])?\s*[:：!]"
    r"|^error (?:response|from|while|in|at)\b|^[\w./-]+:\d+(?::\d+)?: (?:fatal )?error\b"
    r"|^HTTP/[\d.]+ [45]\d\d\b"
    r"|^curl: \(\d+\)|^[\w./-]+: (?:\d+: )?(?:\S+: )?not found$|\bconnection refused\b|\bNo such \w+:"
    r"|^npm ERR!|^make: \*\*\*|^\W{0,4}(?:错误|异常|失败)[:：]"
    r"|\bcommand not found\b|\bis not recognized as an internal or external command"
    r"|: (?:No such file or directory|Permission denied|Is a directory|Not a directory|cannot access)"
    r"|\b(?:ENOENT|EACCES|ECONNREFUSED|ETIMEDOUT|EPERM)\b|^Segmentation fault|\(core dumped\)"
    r"|^(?:request|operation|command|connection)? ?timed out\b|^unknown (?:tool|command|option)",
    re.I,
)
_FOUND_LINE = re.compile(r"^[\w./-]+:\d+:")
_BAD_STATUS = frozenset({"error", "failed", "failure", "fail", "timeout", "denied"})
_CODE_KEYS = ("exitCode", "exit_code", "exitcode", "returncode", "return_code")
_WHY_KEYS = ("error", "message", "stderr", "reason", "detail", "content", "text", "output")


def read_result(output: str, tool: str = "") -> Finding:
    """Score one result: -1 for a failure, with a hint; 0 for an empty one; otherwise +1."""
    text = output.strip()
    if not text:
        return Finding(0, "tool gave nothing")
    failure = _json_failure(text)
    if failure is None:
        failure = _text_failure(text, tool)
    if not failure:
        return Finding(1, "tool succeeded")
    line = _shortened(failure)
    name = f"The call of {tool}" if tool else "The call"
    return Finding(-1, "tool error", line, f"{name} fails with: {line}. Avoid what causes this.")


def _json_failure(text: str) -> str | None:
    """The failure that a JSON result declares; "" if it declares none, None if it is no JSON object."""
    try:
        parsed = json.loads(text) if text.startswith("{") else None
    except (json.JSONDecodeError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    levels = [parsed, *(value for value in parsed.values() if isinstance(value, dict))]
    return next((_words(level) or text for level in levels if _declares_failure(level)), "")


def _declares_failure(result: dict[str, object]) -> bool:
    return bool(
        result.get("error")
        or str(result.get("status", "")).lower() in _BAD_STATUS
        or result.get("isError") is True
        or result.get("is_error") is True
        or result.get("success") is False
        or result.get("ok") is False
        or any(isinstance(result.get(key), int) and result[key] != 0 for key in _CODE_KEYS)
    )


def _words(value: object) -> str:
    """The explanation inside a JSON failure, wherever the usual keys put it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return next((words for item in value if (words := _words(item))), "")
    if isinstance(value, dict):
        return next((words for key in _WHY_KEYS if (words := _words(value.get(key)))), "")
    return ""


def _text_failure(text: str, tool: str) -> str:
    """The most telling line of a plain failure, or ""."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _READERS.search(tool):
        # What was read may talk of errors; only the tool's own first line speaks of the reading.
        return lines[0] if _is_error_line(lines[0]) and not _FOUND_LINE.match(lines[0]) else ""
    exits = _EXIT.findall(text)
    if exits and int(exits[-1]) == 0:
        return ""
    failed_tests = _FAILED_TESTS.search(text)
    if failed_tests:
        detail = _TEST_DETAIL.search(text)
        return detail.group() if detail else _line_at(text, failed_tests.start())
    near_the_ends = lines if len(lines) <= _HEAD + _TAIL else lines[:_HEAD] + lines[-_TAIL:]
    raised = [line for line in near_the_ends if _EXCEPTION.match(line)]
    if raised and (_TRACEBACK in text or len(lines) <= 3):
        return raised[-1]
    wrong = [line for line in near_the_ends if _is_error_line(line)]
    if wrong:
        return wrong[0]
    if exits:
        # The last line before the one that gives the code is where programs say why.
        return next(line for line in reversed(lines) if _EXIT.search(line))
    return _TRACEBACK if _TRACEBACK in text else ""


def _is_error_line(line: str) -> bool:
    return bool(_ERROR_LINE.search(line) or _EXCEPTION.match(line))


def _line_at(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    return text[start:].splitlines()[0].strip()


def _shortened(line: str) -> str:
    line = " ".join(line.split()).rstrip(".")
    return line if len(line) <= LONGEST_EVIDENCE else line[:LONGEST_EVIDENCE] + " [...]"
