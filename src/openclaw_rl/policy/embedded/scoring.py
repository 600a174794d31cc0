"""Passes over given tokens: what the weights say of a reply, and whether they are fit to serve.

Runs on the engine's thread, between two steps. Knows no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch

from openclaw_rl.policy.embedded.sampler import log_probs
from openclaw_rl.policy.embedded.scheduler import Weights
from openclaw_rl.policy.engine import BadVersionError, EngineError, SampledToken
from openclaw_rl.policy.self_test import LIKELIEST, fault, probes

ROWS_AT_ONCE = 256
"""Positions whose whole distributions are in memory together."""

log = logging.getLogger(__name__)


@torch.inference_mode()
def scored(
    weights: Weights, prompt_ids: tuple[int, ...], reply_ids: tuple[int, ...], top_logprobs: int
) -> list[SampledToken]:
    """The reply's tokens with their log-probs at temperature 1; see `PolicyEngine.score`."""
    network = weights.network
    token_ids = [*prompt_ids, *reply_ids]
    if not all(0 <= token_id < network.vocabulary for token_id in token_ids):
        raise EngineError("a token to score is none of this model")
    keep = torch.arange(len(prompt_ids) - 1, len(token_ids) - 1)
    found: list[SampledToken] = []
    try:
        hidden = network.packed_hidden([token_ids], keep, weights.adapter)
        for start in range(0, len(reply_ids), ROWS_AT_ONCE):
            rows = hidden[start : start + ROWS_AT_ONCE]
            found += _told(_scores(weights, rows), reply_ids[start : start + len(rows)], top_logprobs)
    except RuntimeError as error:  # no memory: whoever asked must hear of it, and serving goes on
        log.warning("tokens could not be scored: %s", error)
        raise EngineError("the engine failed while it scored these tokens") from error
    return found


@torch.inference_mode()
def test(weights: Weights, vocabulary: int) -> None:
    """Raise BadVersionError unless the weights, of so many tokens, answer the probes as a model does."""
    network = weights.network
    if network.vocabulary != vocabulary:
        raise BadVersionError(f"version {weights.version} has {network.vocabulary} tokens, not {vocabulary}")
    prompts = probes(vocabulary)
    logits = network.packed_logits(prompts, torch.arange(sum(map(len, prompts))), weights.adapter)
    if not logits.isfinite().all():
        raise BadVersionError(f"version {weights.version} gives log-probs that are not finite")
    ends = torch.tensor([len(prompt) for prompt in prompts]).cumsum(0) - 1
    scores = log_probs(logits[ends.to(logits.device)], torch.ones(len(prompts), device=logits.device))
    found = scores.topk(min(LIKELIEST, vocabulary))
    answers = [
        list(zip(*row, strict=True))
        for row in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]
    if wrong := fault(answers, vocabulary):
        raise BadVersionError(f"version {weights.version} {wrong}")


def _scores(weights: Weights, hidden: torch.Tensor) -> torch.Tensor:
    """Log-probs over the vocabulary at temperature 1: float32 [rows, vocabulary]."""
    logits = weights.network.project(hidden)
    return log_probs(logits, torch.ones(len(hidden), device=hidden.device))


def _told(scores: torch.Tensor, token_ids: tuple[int, ...], top_logprobs: int) -> Iterator[SampledToken]:
    given = torch.tensor(token_ids, device=scores.device).unsqueeze(-1)
    logprobs = scores.gather(-1, given).squeeze(-1).tolist()
    likeliest = scores.topk(min(top_logprobs, scores.shape[-1]))
    ids, values = likeliest.indices.tolist(), likeliest.values.tolist()
    for row, token_id in enumerate(token_ids):
        yield SampledToken(
            token_id, logprobs[row], alternatives=tuple(zip(ids[row], values[row], strict=True))
        )
