"""Grammars as masks over the vocabulary, computed by llguidance.

Compiled grammars are kept, the least used ones go. Each is tried in a process that may be killed before it
is compiled in this one (`trial`). A mask is computed on a thread of its own while the forward pass runs,
so a step waits for it only where it takes longer than that. Knows no schema and no text.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from openclaw_rl.policy.embedded.trial import Trial, compiled, read_tokenizer
from openclaw_rl.policy.engine import EngineBusyError, EngineError, GrammarError

KEPT_GRAMMARS = 64
COMPILED_AT_ONCE = 2
MOST_COMPILING = 64
"""Grammars that are being compiled or wait for it."""
COMPILE_SECONDS = 5.0
"""The computing that a grammar may take to compile."""
WAIT_SECONDS = 15.0
"""The longest that a request waits for its grammar: others' may be compiled first."""
LONGEST_GRAMMAR = 64 * 1024
"""Characters of a grammar's text."""

_LIMITS: dict[str, Any] = {
    "max_grammar_size": 100_000,
    "max_lexer_states": 50_000,
    "verbose_errors": False,
}
"""What one grammar may cost; a lexer state takes about 2 kB."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Compiled:
    """A grammar that is ready for replies, as long as somebody holds this."""

    matcher: LLMatcher


class Grammars:
    """The compiled grammars of one engine."""

    def __init__(self, tokenizer_file: Path, vocabulary: int, stop_ids: Set[int]) -> None:
        self._tokenizer_file = tokenizer_file
        self._vocabulary = vocabulary
        self._stop_ids = sorted(stop_ids)
        self._kept: OrderedDict[str, Compiled | GrammarError] = OrderedDict()
        self._held: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
        self._keeping = Lock()
        self._compiling: dict[str, Future[Compiled]] = {}
        self._compilers = ThreadPoolExecutor(COMPILED_AT_ONCE, thread_name_prefix="grammar-compiler")
        self._trials: list[Trial] = []
        self._idle_trials: list[Trial] = []
        self._closed = False
        self._masker = ThreadPoolExecutor(1, thread_name_prefix="grammar-masks")

    def prepare(self, text: str) -> Future[Compiled]:
        """Compile in the background; `constraint` finds it while the result is held.

        The future raises GrammarError for a text that cannot be compiled. It is shared by all who ask for
        one text, and done at once for one that is known. Raises EngineBusyError when too many wait already,
        and EngineError, now or by the future, once this is closed.
        """
        with self._keeping:
            if self._closed:
                raise _closing()
            if (running := self._compiling.get(text)) is not None:
                return running
            if (known := self._kept.get(text)) is not None:
                self._kept.move_to_end(text)
                return _done(known)
            if len(text) > LONGEST_GRAMMAR:
                return _done(GrammarError(f"it is longer than {LONGEST_GRAMMAR} characters"))
            if len(self._compiling) >= MOST_COMPILING:
                raise EngineBusyError(f"{MOST_COMPILING} grammars wait to be compiled already; try again")
            self._compiling[text] = future = Future[Compiled]()
            self._compilers.submit(self._prepare, text, future)
        return future

    async def ready(self, text: str) -> Compiled:
        """`prepare`, waited for. Raises what it raises, and GrammarError."""
        compiling = asyncio.wrap_future(self.prepare(text))
        try:
            # Others may wait for the same future, so it must not be cancelled.
            return await asyncio.wait_for(asyncio.shield(compiling), WAIT_SECONDS)
        except TimeoutError:
            compiling.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise EngineBusyError("other grammars are being compiled; try again in a few seconds") from None

    def constraint(self, text: str) -> Constraint:
        """The beginning of one reply. Raises GrammarError for a text that was not prepared, or in vain."""
        with self._keeping:
            known = self._kept.get(text) or self._held.get(text)
        if known is None:
            raise GrammarError("the grammar was not prepared")
        if isinstance(known, GrammarError):
            raise GrammarError(str(known))
        return Constraint(
            known.matcher.deep_copy(),
            self._masker,
            self._vocabulary,
            self._stop_ids,
            on_giving_up=lambda: self._forget(text),
        )

    def close(self) -> None:
        with self._keeping:
            self._closed = True
            trials, given_up = list(self._trials), list(self._compiling.values())
            self._compiling.clear()
        for future in given_up:
            future.set_exception(_closing())
        for trial in trials:
            trial.close()
        self._compilers.shutdown(wait=False, cancel_futures=True)
        self._masker.shutdown(wait=False, cancel_futures=True)

    def _forget(self, text: str) -> None:
        # Its replies share what the lexer found out; where that is too much, the next one starts anew.
        with self._keeping:
            self._kept.pop(text, None)

    # Below: a compiler's thread.

    def _prepare(self, text: str, future: Future[Compiled]) -> None:
        known: Compiled | GrammarError
        try:
            known = self._compile(text)
        except GrammarError as error:
            known = error
        except Exception as error:  # noqa: BLE001 - a thread's boundary: who waits must hear of it
            known = GrammarError(f"the library failed with {type(error).__name__}")
        with self._keeping:
            # What cannot be compiled is kept too: it is not tried again.
            self._kept[text] = known
            if isinstance(known, Compiled):
                self._held[text] = known
            while len(self._kept) > KEPT_GRAMMARS:
                self._kept.popitem(last=False)
            given_up = self._compiling.pop(text, None) is None
        if not given_up:
            _settle(future, known)

    def _compile(self, text: str) -> Compiled:
        trial = self._idle_trial()
        fault = trial.fault(text, _LIMITS, COMPILE_SECONDS)
        self._give_back(trial)
        if fault:
            raise GrammarError(_why(fault))
        matcher = compiled(self._tokenizer, text, _LIMITS)
        if matcher.is_error():
            raise GrammarError(_why(matcher.get_error()))
        return Compiled(matcher)

    def _idle_trial(self) -> Trial:
        with self._keeping:
            while self._idle_trials:
                if (trial := self._idle_trials.pop()).alive:
                    return trial
                self._trials.remove(trial)
        trial = Trial(str(self._tokenizer_file), self._vocabulary, self._stop_ids)
        with self._keeping:
            self._trials.append(trial)
            closed = self._closed
        if closed:
            trial.close()
        return trial

    def _give_back(self, trial: Trial) -> None:
        with self._keeping:
            self._idle_trials.append(trial)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        text = self._tokenizer_file.read_text(encoding="utf-8")
        return read_tokenizer(text, self._vocabulary, self._stop_ids)


def _closing() -> EngineError:
    return EngineError("the engine is closing")


def _done(known: Compiled | GrammarError) -> Future[Compiled]:
    future = Future[Compiled]()
    _settle(future, known)
    return future


def _settle(future: Future[Compiled], known: Compiled | GrammarError) -> None:
    if isinstance(known, GrammarError):
        future.set_exception(GrammarError(str(known)))  # one of its own: a raised one grows a traceback
    else:
        future.set_result(known)


class Constraint:
    """Which tokens one reply may go on with; asked and told by one thread, in turns."""

    def __init__(
        self,
        matcher: LLMatcher,
        masker: ThreadPoolExecutor,
        vocabulary: int,
        stop_ids: list[int],
        on_giving_up: Callable[[], None],
    ) -> None:
        self._matcher = matcher
        self._masker = masker
        self._vocabulary = vocabulary
        self._stop_ids = stop_ids
        self._on_giving_up = on_giving_up
        self._mask = masker.submit(self._compute)
        self.gave_up = False
        """A step went past the library's limits: the reply can only end, unfinished."""

    def allowed(self) -> torch.Tensor:
        """Which tokens may come next: [vocabulary], bool, never all false."""
        return self._mask.result()

    def advance(self, token_id: int) -> None:
        """This one was drawn."""
        self._mask = self._masker.submit(self._compute, token_id)

    def _compute(self, token_id: int | None = None) -> torch.Tensor:
        if token_id is not None:
            self._matcher.consume_token(token_id)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: self._vocabulary]).bool()
        if self._matcher.is_error() or not mask.any():
            self.gave_up = True
            self._on_giving_up()
            mask = torch.zeros(self._vocabulary, dtype=torch.bool)
            mask[self._stop_ids or slice(None)] = True
        return mask


_PLACE = re.compile(r"^at \d+\(\d+\): |failed to compile JSON schema: ")
"""Where in the grammar's text, which the client has not written, and what it knows."""


def _why(error: str) -> str:
    """The library's reason in one line, without its picture of the text."""
    first, *others = [_PLACE.sub("", line).strip() for line in error.strip().splitlines()] or [""]
    inner = next((line for line in others if line.startswith("error: ")), "")
    return " ".join(filter(None, [first, inner])) or "it cannot be compiled"
