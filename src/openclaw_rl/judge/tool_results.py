"""What a tool's result says of the call: structure first (JSON, exit codes, test verdicts), then error lines.

The tool's words never praise and never blame: only signs of failure count, in places where programs put
them, so that a log or a source file that merely mentions errors is still a success.
"""

from __future__ import annotations

import json
import re

from openclaw_rl.judge import failure_signs as signs
from openclaw_rl.judge.finding import Finding

LONGEST_EVIDENCE = 200
"""Characters of a tool's own words that may go into a hint."""
_HEAD, _TAIL = 5, 25
"""Lines at the start and the end of an output where error lines are looked for."""
_FEW = 4
"""An output of at most so many lines is the tool's own words, not something it shows."""

_READERS = re.compile(
    r"^(read|cat|head|tail|less|awk|sed -n|diff|jq|rg|git |open|view|get|fetch|grep|search|find|list|ls\b|web"
    r"|browse)|(_|\b)(read|search|fetch)",
    re.I,
)
_FOUND_LINE = re.compile(r"^[\w./-]+:\d+:")
_BAD_STATUS = frozenset({"error", "failed", "failure", "fail", "timeout", "denied"})
_CODE_KEYS = ("exitCode", "exit_code", "exitcode", "returncode", "return_code")
_STATUS_KEYS = ("status", "statusCode", "status_code", "code", "cod", "http_status")
_EXPLAINING_KEYS = frozenset(
    {"error", "errors", "message", "detail", "details", "reason", "title", "type", "hint", *_STATUS_KEYS}
)
_WHY_KEYS = ("error", "message", "stderr", "reason", "detail", "content", "text", "output")


def read_result(output: str, tool: str = "") -> Finding:
    """Score one result: -1 for a failure, with a hint where it names a cause; 0 for an empty one; else +1."""
    text = output.strip()
    if not text:
        return Finding(0, "tool gave nothing")
    if signs.SCREEN_TOOL.search(tool) or signs.SCREEN_TEXT.match(text):
        return _read_screen(text, tool)
    failure = _json_failure(text)
    if failure is None:
        failure = _text_failure(text, tool)
    return _finding(failure, tool) if failure else Finding(1, "tool succeeded")


def _finding(failure: str, tool: str) -> Finding:
    line = _shortened(failure)
    if _is_bare_code(line):
        return Finding(-1, "tool error", line)
    name = f"The call of {tool}" if tool else "The call"
    return Finding(-1, "tool error", line, f"{name} fails with: {line}. Avoid what causes this.")


def _is_bare_code(line: str) -> bool:
    """Whether a failure says that it is one and nothing of its cause."""
    rest = signs.KILLED.sub("", signs.EXIT.sub("", line))
    return not re.search(
        r"[^\W\d_]{3,}", re.sub(r"(?i)process|command|finished|with|after|seconds|task", "", rest)
    )


def _read_screen(text: str, tool: str) -> Finding:
    """What a screen shows after an action: a notice of a problem, no change at all, or the next view."""
    pieces = [piece.strip() for piece in re.split(r"(?<=[.!\"”]) +|\n", text) if piece.strip()]
    problem = next((piece for piece in pieces if signs.SCREEN_PROBLEM.search(piece)), "")
    if problem:
        line = _shortened(problem)
        return Finding(-1, "screen shows a problem", line, f"The action ended with: {line}. Avoid this.")
    if signs.SCREEN_STILL.search(text):
        return Finding(-1, "screen is unchanged", _shortened(text))
    return _finding(failure, tool) if (failure := _json_failure(text)) else Finding(1, "tool succeeded")


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
        or any(re.fullmatch(r"[45]\d\d", str(result.get(key, ""))) for key in _STATUS_KEYS)
        or _only_explains_a_refusal(result)
    )


def _only_explains_a_refusal(result: dict[str, object]) -> bool:
    """Whether there is no data in it, only a message, and that speaks of a refusal."""
    return bool(result) and result.keys() <= _EXPLAINING_KEYS and bool(signs.REFUSAL.search(_words(result)))


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
        speaks = _is_error_line(lines[0]) or (len(lines) == 1 and _refuses_to_read(lines[0]))
        return lines[0] if speaks and not _FOUND_LINE.match(lines[0]) else ""
    exits = signs.EXIT.findall(text)
    if exits and int(exits[-1]) == 0:
        return ""
    failed_tests = signs.FAILED_TESTS.search(signs.NO_FAILURE.sub("", text))
    if failed_tests:
        detail = signs.TEST_DETAIL.search(text)
        return detail.group() if detail else _line_at(text, max(0, text.find(failed_tests.group())))
    near_the_ends = lines if len(lines) <= _HEAD + _TAIL else lines[:_HEAD] + lines[-_TAIL:]
    raised = [line for line in near_the_ends if signs.EXCEPTION.match(line)]
    if raised and (exits or signs.TRACEBACK in text or len(lines) <= 3):
        return raised[-1]
    wrong = [line for line in near_the_ends if _is_error_line(line)]
    if not wrong and (exits or len(lines) <= _FEW):
        wrong = [line for line in near_the_ends if _refuses(line)]
    if wrong:
        return wrong[0]
    if exits:
        return next(line for line in reversed(lines) if signs.EXIT.search(line))
    if (killed := signs.KILLED.search(text)) and len(lines) <= _FEW:
        return _line_at(text, killed.start())
    return signs.TRACEBACK if signs.TRACEBACK in text else ""


def _is_error_line(line: str) -> bool:
    return bool(signs.ERROR_LINE.search(line) or signs.EXCEPTION.match(line))


def _refuses(line: str) -> bool:
    return bool(signs.REFUSAL.search(signs.NO_FAILURE.sub("", line))) and not signs.EXIT.fullmatch(line)


def _refuses_to_read(line: str) -> bool:
    """For a reading tool: a sentence about the file or the service, not a piece of what it holds."""
    return len(line) <= LONGEST_EVIDENCE and bool(
        re.search(
            r"^\w*(?:[\w ]{0,40})\b(?:not found|failed|denied|does not exist|refused|exceeded)\b", line, re.I
        )
        or re.search(r"^\S{0,6}(?:无法|找不到|不存在|失败)", line)
    )


def _line_at(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    return text[start:].splitlines()[0].strip()


def _shortened(line: str) -> str:
    line = " ".join(line.split()).rstrip(".")
    return line if len(line) <= LONGEST_EVIDENCE else line[:LONGEST_EVIDENCE] + " [...]"
