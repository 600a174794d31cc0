"""The signs by which programs, services and screens say that something failed.

Data only: compiled patterns for exit codes, test reports, error lines and notices on a screen.
`tool_results` says where in an output each of them counts.
"""

from __future__ import annotations

import re

EXIT = re.compile(
    r"(?:\bexit(?:ed|s)?(?: with)?(?:[ _]?(?:code|status|value))?|\breturn[ _]?code|\brc|\breturned"
    r"|non-zero exit status|退出码|返回码)\W{0,3}(-?\d+)\b",
    re.I,
)
KILLED = re.compile(
    r"^\W{0,3}(?:signal: )?killed\b|\bterminated by signal\b|\btimed out after\b"
    r"|^[^\w\n]{0,20}terminated$",
    re.I | re.M,
)

FAILED_TESTS = re.compile(
    r"\b[1-9]\d* (?:failed|failures?|failing)\b|\bFAILED \((?:failures|errors)=|\btest result: FAILED"
    r"|^--- FAIL\b|^FAIL\b|\b(?:failures|errors): *[1-9]|\b[1-9]\d* errors? in\b|^not ok\b|^# fail +[1-9]"
    r"|[✖✗] [1-9]\d* problem|^BUILD FAILED\b",
    re.M | re.I,
)
TEST_DETAIL = re.compile(
    r"^[ \t]*(?:FAILED|ERROR|E  +|--- FAIL:|FAIL:|✕|●|not ok|\d+:\d+ +error)[ \t]?.*"
    r"|^\[ERROR\] (?!Tests run).*|^\S+:\d+:.*\berror:.*",
    re.M,
)

EXCEPTION = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Warning|Exit)\b(?::.*)?$")
TRACEBACK = "Traceback (most recent call last)"

ERROR_LINE = re.compile(
    r"^\W{0,4}(?:[\w']+ )?(?:error|fatal|exception|panic|failure|failed)(?:\[\w+\]| \d+(?: \(\w+\))?)?"
    r"\s*[:：!]"
    r"|^error (?:response|from|while|in|at)\b|^[\w./-]+:(?:\d+:)*\s?(?:fatal )?error\b"
    r"|^(?:[\w.]+\.)+[A-Z]\w*(?:Error|Exception): "
    r"|^HTTP/[\d.]+ [45]\d\d\b|^[A-Z]{3,8} [45]\d\d\b"
    r"|^curl: \(\d+\)|^[\w./-]+: (?:\d+: )?(?:\S+: )?not found$|\bconnection refused\b|\bNo such \w+:"
    r"|^npm ERR!|^make: \*\*\*|^\W{0,4}[\u4e00-\u9fff]{0,4}(?:错误|异常|失败|无法\S*)[:：]"
    r"|\bcommand not found\b|\bis not recognized as an internal or external command"
    r"|: (?:No such file or directory|Permission denied|Is a directory|Not a directory|cannot access)"
    r"|\b(?:ENOENT|EACCES|ECONNREFUSED|ETIMEDOUT|EPERM|EISDIR|EEXIST)\b|^Segmentation fault|\(core dumped\)"
    r"|^(?:request|operation|command|connection)? ?timed out\b|^unknown (?:tool|command|option)"
    r"|^[\w./-]+: (?:cannot|can't|could not|couldn't|unable to|failed to)\b|^Failed to \w+"
    r"|^\w+ failed(?:[:.]|$)|^! \[rejected\]",
    re.I,
)
"""A line that states an error wherever it stands near the ends of an output."""

REFUSAL = re.compile(
    r"\bnot (?:found|match\w*|allowed|permitted|supported|authori[sz]ed|authenticated|available|accessible"
    r"|recogni[sz]ed|installed|a valid|valid|enough|exist|empty)\b|\b(?:can(?:not|'t)|could(?:n't| not)"
    r"|unable to|failed|fails|did(?:n't| not)|does(?:n't| not)) (?:\w+ )?\w+"
    r"|\b(?:denied|refused|rejected|forbidden|unauthori[sz]ed|declined|invalid|unrecognized|unsupported"
    r"|expired|exceeded|insufficient|corrupt\w*|conflict|malformed|too (?:large|long|many \w+)"
    r"|out of (?:memory|range|space|disk)|already (?:exists?|in use|allocated)|no space left"
    r"|no rule to|rate limit\w*|timed? ?out)\b|^(?:unexpected|missing|undefined|expected)\b"
    r"|不存在|找不到|无法|权限不足|拒绝|超时|无效|失败|错误",
    re.I,
)
"""Words of refusal: they count in an output of a few lines, and beside an exit code that is not zero."""

NO_FAILURE = re.compile(
    r"\b(?:0|no|zero|without) (?:\w+ )?(?:errors?|failures?|failed|issues?|problems?|warnings?|conflicts?"
    r"|missing)\b|\b(?:errors?|failures?|failed)[:=] ?0\b|没有错误|无错误",
    re.I,
)

SCREEN_TOOL = re.compile(
    r"computer|browser|screen|click|mouse|\btap\b|gui|desktop|playwright|selenium|navigate", re.I
)
SCREEN_TEXT = re.compile(r"^\W*(?:screenshot|screen|window|dialog|page|alert|toast)\b", re.I)
SCREEN_PROBLEM = re.compile(
    r"\b(?:error|wrong|incorrect|denied|permission|rejected|failed|failure|problem|oops|sorry|unavailable"
    r"|required field|is required|blocked|crashed|not responding)\b"
    r"|\bplease (?:enter|choose|select|fill|provide|correct|check|try|sign|log|accept|confirm your)"
    r"|\b(?:session|link|token) (?:has )?expired|\b(?:40[0-9]|50[0-4])\b(?= ?[-–:]|$| not)|\bnot found\b"
    r"|\binvalid\b|\bcan(?:'t|not) be (?:reached|found|opened|saved)|\bcould(?:n't| not)\b|\bunable to\b"
    r"|\bdon't have (?:access|permission)|\btry again\b|错误|失败|无法|请(?:输入|选择|重新|先)|不存在|已过期",
    re.I,
)
SCREEN_STILL = re.compile(
    r"\b(?:unchanged|no (?:visible |apparent )?changes?|nothing (?:changed|happened)|did not change"
    r"|didn't change|same as before|has not changed|hasn't changed)\b|没有变化|无变化",
    re.I,
)
