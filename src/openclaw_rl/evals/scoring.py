"""Does a reply please the user who wants one short sentence? Half style, half usefulness.

A reply counts only if it has the style and still answers the question. On held-out questions that is
decided by `answers`, from words that an answer to that question contains; while talking, where no such
words are known, the simulated user decides by `Plausibility`. Both are deterministic. Knows no HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import token_log_probs

MOST_WORDS = 25
"""Of a short sentence."""

LEAST_LIKELIHOOD = -2.0
"""Mean log-prob per token, under the base, below which a reply reads as no answer to its question."""

JUDGED_TOKENS = 32
"""The likelihood of a longer reply is that of its beginning."""

_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_ANY_WORD = re.compile(r"[a-z0-9']+")
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


def useful_fault(reply: str, terms: Sequence[str], *, finished: bool) -> str:
    """Why `reply` does not answer a held-out question: "", "cut off" or "no answer in it".

    `terms` are beginnings of words, of which an answer contains at least one and the question none.
    """
    if not finished:
        return "cut off"
    words = _ANY_WORD.findall(reply.lower())
    return "" if any(word.startswith(term) for word in words for term in terms) else "no answer in it"


class Plausibility:
    """Whether a reply sounds like an answer to its question, by the frozen base model's log-probs.

    It must say something new, be likely after its question, and likelier than after any other of a few.
    """

    def __init__(
        self, network: Network, template: ChatTemplate, others: Sequence[str], distractors: int
    ) -> None:
        """`others` are questions to tell the reply's own from; a fixed choice of `distractors` is used."""
        self._network = network
        self._template = template
        self._others = list(others)
        self._distractors = distractors

    def holds(self, question: str, reply: str) -> bool:
        if not content_words(reply) - content_words(question):
            return False
        own, *others = self._likelihoods([question, *self._choose(question)], reply)
        return own >= LEAST_LIKELIHOOD and own > max(others)

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
