"""Random replies that a grammar allows, as a policy without any sense would write them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from llguidance import LLMatcher, LLTokenizer

from openclaw_rl.policy.chat_template import ChatTemplate


@cache
def _tokenizer(text: str, stop_id: int) -> LLTokenizer:
    return LLTokenizer(text, eos_token=stop_id)


@dataclass(frozen=True)
class Grammar:
    """A grammar on a template's tokenizer."""

    template: ChatTemplate
    text: str

    @property
    def matcher(self) -> LLMatcher:
        tokenizer = _tokenizer(self.template.tokenizer.to_str(), min(self.template.stop_ids))
        matcher = LLMatcher(tokenizer, self.text, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def allows(self, reply: str) -> bool:
        matcher = self.matcher
        token_ids = self.template.tokenizer.encode(reply, add_special_tokens=False).ids
        return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()

    def walk(self, seed: int, most: int = 2000) -> str:
        """A reply of tokens drawn evenly from those that are allowed; fails if it does not end."""
        chooser, matcher, token_ids = random.Random(seed), self.matcher, []
        for _ in range(most):
            bits = matcher.compute_bitmask()
            allowed = [at for at in range(8 * len(bits)) if bits[at // 8] >> (at % 8) & 1]
            token_id = chooser.choice(allowed)
            if token_id in self.template.stop_ids:
                return self.template.decode(token_ids, skip_special_tokens=False)
            assert matcher.consume_token(token_id)
            token_ids.append(token_id)
        raise AssertionError("the reply did not end")
