"""A grammar's first compile, in a process that may be killed: some texts are small and take for ever.

This file is also that process's program, run by its path: it imports the standard library and llguidance
alone, so that a child starts in a fraction of a second. It lives on for the next grammar.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_WALL_SECONDS_EACH = 4.0
"""On a busy machine a second of computing may take this long."""
_STEPS_TRIED = 4
_DEAD_END = "NoExtensionBias"
"""The library's word for a state that no token leads out of."""


class Trial:
    """One child process. Asked by one thread at a time."""

    def __init__(self, tokenizer_file: str, vocabulary: int, stop_ids: Sequence[int]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", __file__, tokenizer_file, str(vocabulary), *map(str, stop_ids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server
        )
        self._asked = cast(IO[bytes], self._child.stdin)
        self._answers = cast(IO[bytes], self._child.stdout)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def fault(self, text: str, limits: Mapping[str, Any], seconds: float) -> str:
        """Why a grammar is of no use, in the library's words; empty when it compiles.

        It may compute for `seconds`, start of the child not included; then the child is no more.
        """
        asked = json.dumps([text, limits, seconds]).encode() + b"\n"
        try:
            self._asked.write(asked)
            self._asked.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = b""
        if answer:
            return str(json.loads(answer))
        if self._child.wait() in (-signal.SIGPROF, -signal.SIGALRM):
            return f"it takes more than {seconds:g} s to compile"
        return "the library failed on it"

    def close(self) -> None:
        """End the child, whatever it computes. Any thread may call this."""
        self._child.kill()
        self._child.wait()


def read_tokenizer(text: str, vocabulary: int, stop_ids: Sequence[int]) -> LLTokenizer:
    """A tokenizer.json as llguidance reads it, with `vocabulary` tokens at least."""
    found = LLTokenizer(text, eos_token=list(stop_ids) or None)
    if found.vocab_size >= vocabulary:
        return found
    # Many models have more rows in their vocabulary than their tokenizer has tokens.
    return LLTokenizer(text, n_vocab=vocabulary, eos_token=list(stop_ids) or None)


def compiled(tokenizer: LLTokenizer, text: str, limits: Mapping[str, Any]) -> LLMatcher:
    """At the beginning of a reply; ask it whether it is an error."""
    return LLMatcher(tokenizer, text, log_level=0, limits=LLParserLimits(**limits))


def _fault(matcher: LLMatcher) -> str:
    """Also of a grammar that compiles, but has no first token or goes past the limits within a few."""
    begun = matcher.deep_copy()
    for _ in range(_STEPS_TRIED):
        if begun.is_error():
            break
        bits = begun.compute_bitmask()
        place = next((place for place, byte in enumerate(bits) if byte), None)
        if begun.is_error() or place is None:
            break
        begun.consume_token(8 * place + (bits[place] & -bits[place]).bit_length() - 1)
        if begun.is_stopped() and not begun.is_error():
            return ""
    else:
        return ""
    error = str(begun.get_error() or _DEAD_END)
    return "no reply fits it" if error.startswith(_DEAD_END) else error.replace("<non-verbose/>", "")


def _serve(tokenizer_file: str, vocabulary: str, *stop_ids: str) -> None:
    text = Path(tokenizer_file).read_text(encoding="utf-8")
    tokenizer = read_tokenizer(text, int(vocabulary), [int(each) for each in stop_ids])
    # Both signals end this process, also inside the library: the time is its own, not the machine's.
    for line in sys.stdin.buffer:
        text, limits, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds * _WALL_SECONDS_EACH)
        fault = _fault(compiled(tokenizer, text, limits))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(fault) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
