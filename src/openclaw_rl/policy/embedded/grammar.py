"""Grammars as masks over the vocabulary, computed by llguidance.

Compiled grammars are kept, the least used ones go. A mask is computed on a thread of its own while the
forward pass runs, so a step waits for it only where it takes longer than that. Knows no schema and no text.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Set
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from openclaw_rl.policy.engine import GrammarError

KEPT_GRAMMARS = 64
COMPILED_AT_ONCE = 2
LONGEST_GRAMMAR = 64 * 1024
"""Characters of a grammar's text."""

_LIMITS = LLParserLimits(max_grammar_size=100_000, max_lexer_states=50_000, verbose_errors=False)
"""What one grammar may cost; a lexer state takes about 2 kB."""


class Grammars:
    """The compiled grammars of one engine."""

    def __init__(self, tokenizer_file: Path, vocabulary: int, stop_ids: Set[int]) -> None:
        self._tokenizer_file = tokenizer_file
        self._vocabulary = vocabulary
        self._stop_ids = sorted(stop_ids)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._keeping = Lock()
        self._compiling: dict[str, Future[None]] = {}
        self._turns_to_compile = BoundedSemaphore(COMPILED_AT_ONCE)
        self._masker = ThreadPoolExecutor(1, thread_name_prefix="grammar-masks")

    def prepare(self, text: str) -> Future[None]:
        """Compile in the background; the future raises GrammarError for a text that cannot be compiled.

        It may take for ever: some schemas are small and hard. Requests for one text share one future.
        """
        with self._keeping:
            if (running := self._compiling.get(text)) is not None:
                return running
            self._compiling[text] = future = Future[None]()
        # A thread that never ends must not keep the process from ending.
        Thread(target=self._prepare, args=(text, future), name="grammar-compiler", daemon=True).start()
        return future

    def constraint(self, text: str) -> Constraint:
        """The beginning of one reply. Compiles the text first where it was not prepared."""
        return Constraint(
            self._matcher(text).deep_copy(),
            self._masker,
            self._vocabulary,
            self._stop_ids,
            on_giving_up=lambda: self._forget(text),
        )

    def close(self) -> None:
        self._masker.shutdown(wait=False, cancel_futures=True)

    def _forget(self, text: str) -> None:
        # Its replies share what the lexer found out; where that is too much, the next one starts anew.
        with self._keeping:
            self._compiled.pop(text, None)

    def _prepare(self, text: str, future: Future[None]) -> None:
        with self._turns_to_compile:
            try:
                self._matcher(text)
            except GrammarError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - a thread's boundary: who waits must hear of it
                future.set_exception(GrammarError(f"the library failed with {type(error).__name__}"))
            else:
                future.set_result(None)
        with self._keeping:
            del self._compiling[text]

    def _matcher(self, text: str) -> LLMatcher:
        if len(text) > LONGEST_GRAMMAR:
            raise GrammarError(f"it is longer than {LONGEST_GRAMMAR} characters")
        with self._keeping:
            matcher = self._compiled.pop(text, None)
        if matcher is None:
            matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=_LIMITS)
        with self._keeping:
            # What cannot be compiled is kept too, as a matcher that says so.
            self._compiled[text] = matcher
            while len(self._compiled) > KEPT_GRAMMARS:
                self._compiled.popitem(last=False)
        if matcher.is_error():
            raise GrammarError(_why(matcher.get_error()))
        return matcher

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        read = self._tokenizer_file.read_text(encoding="utf-8")
        found = LLTokenizer(read, eos_token=self._stop_ids or None)
        if found.vocab_size >= self._vocabulary:
            return found
        # Many models have more rows in their vocabulary than their tokenizer has tokens.
        return LLTokenizer(read, n_vocab=self._vocabulary, eos_token=self._stop_ids or None)


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
