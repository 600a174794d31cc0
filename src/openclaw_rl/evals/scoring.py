"""Does a first reply please the user who wants one short sentence? Half style, half usefulness.

A reply counts only if it has the style and still answers the question. Both halves are deterministic. The
usefulness rule asks the frozen base model which of several questions the reply answers: style alone, and
counts of new words, were each cheated by replies such as "True: the key to success". Knows no HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import token_log_probs

MOST_WORDS = 25
NEW_WORDS = 3
DISTRACTORS = 15
JUDGED_TOKENS = 32
"""The rank of a longer reply is found from its beginning."""

_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]?(?=\s|$)")
_NO_CONTENT = frozenset(
    """a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each few for from further had has
    have having he her here hers him his how i if in into is it its itself just let me more most my
    no nor not of off on once only or other our out over own same she should so some such than that
    the their them then there these they this those through to too under until up very was way we
    well were what when where which while who whom why will with would yes you your yours sure okay
    ok hello hi thanks thank please tell explain question answer answers short sentence brief simple
    one help happy glad""".split()
)


@dataclass(frozen=True, slots=True)
class Score:
    """The two halves, and why one failed ("" when it did not)."""

    style: bool
    useful: bool
    style_fault: str = ""
    useful_fault: str = ""

    @property
    def pleases(self) -> bool:
        return self.style and self.useful


def style_fault(reply: str) -> str:
    """Why `reply` is not one short sentence: "", "empty", "several lines", "several sentences" or "long"."""
    text = reply.strip()
    if not text:
        return "empty"
    if "\n" in text:
        return "several lines"
    if len(_SENTENCE_END.findall(text)) > 1:
        return "several sentences"
    if len(text.split()) > MOST_WORDS:
        return "long"
    return ""


def content_words(text: str) -> set[str]:
    """Lower-case words that carry content, cut to a crude stem so that plant and plants are one."""
    words = {word.lower() for word in _WORD.findall(text)}
    return {_stem(word) for word in words if word not in _NO_CONTENT and len(word) > 2}


def _stem(word: str) -> str:
    for ending in ("'s", "ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class Usefulness:
    """Ranks a reply's own question among others by the frozen base's mean log-prob of the reply."""

    def __init__(
        self, network: Network, template: ChatTemplate, others: Sequence[str], distractors: int = DISTRACTORS
    ) -> None:
        """`others` are questions to tell the reply's own from; a fixed choice of `distractors` is used."""
        self._network = network
        self._template = template
        self._others = list(others)
        self._distractors = distractors

    def fault(self, question: str, reply: str, *, finished: bool) -> str:
        """Why `reply` does not answer `question`: "", "cut off", "says nothing new" or "fits others"."""
        if not finished:
            return "cut off"
        if len(content_words(reply) - content_words(question)) < NEW_WORDS:
            return "says nothing new"
        if self.rank(question, reply) > 1:
            return "fits another question better"
        return ""

    def rank(self, question: str, reply: str) -> int:
        """1 when no other question makes the reply as likely as its own does."""
        own, *others = self._likelihoods([question, *self._choose(question)], reply)
        return 1 + sum(other >= own for other in others)

    def _choose(self, question: str) -> list[str]:
        """The same distractors for the same question, whatever was asked before."""
        own = content_words(question)
        distinct = [other for other in self._others if not own & content_words(other)]
        start = sum(question.encode()) % len(distinct)
        step = max(1, len(distinct) // self._distractors)
        return [distinct[(start + step * place) % len(distinct)] for place in range(self._distractors)]

    @torch.inference_mode()
    def _likelihoods(self, questions: Sequence[str], reply: str) -> list[float]:
        """Mean log-prob per token of the reply after each question, under the base."""
        reply_ids = self._template.tokenizer.encode(reply, add_special_tokens=False).ids[:JUDGED_TOKENS]
        prompts = [self._template.prompt_ids([{"role": "user", "content": asked}]) for asked in questions]
        sequences = [(*prompt, *reply_ids)[:-1] for prompt in prompts]
        keep, start = [], 0
        for prompt, sequence in zip(prompts, sequences, strict=True):
            keep.append(torch.arange(start + len(prompt) - 1, start + len(sequence)))
            start += len(sequence)
        logits = self._network.packed_logits(sequences, torch.cat(keep))
        targets = torch.tensor(reply_ids * len(questions), device=logits.device)
        scores = token_log_probs(logits, targets, torch.ones(len(targets), device=logits.device))
        return [own.mean().item() for own in scores.view(len(questions), -1)]
