"""What the engine samples and records, against a plain forward pass of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_runs import (
    GREEDY,
    PlainModel,
    StartEngine,
    ask,
    ask_together,
    prompt,
    publish,
    random_adapter,
    version_at,
)

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.engine import EmbeddedEngine
from openclaw_rl.policy.embedded.network import Network

SAMPLINGS = {
    "temperature 1": Sampling(temperature=1.0, max_tokens=30, seed=1),
    "temperature 0.7": Sampling(temperature=0.7, max_tokens=30, seed=2),
    "top-p": Sampling(temperature=0.9, top_p=0.6, max_tokens=30, seed=3),
    "top-k": Sampling(temperature=1.3, top_k=5, max_tokens=30, seed=4),
    "both": Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=30, seed=5),
}


@pytest.mark.parametrize("length", [1, 2, 40, 300])
def test_greedy_tokens_are_those_of_a_plain_forward_pass(
    engine: EmbeddedEngine, plain: PlainModel, length: int
) -> None:
    reply = ask(engine, prompt(length), GREEDY)
    assert reply.token_ids == plain.greedy(prompt(length), GREEDY.max_tokens)
    plain.assert_gave(prompt(length), GREEDY, reply)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_recorded_log_probs_are_those_of_the_full_vocabulary_at_the_temperature(
    engine: EmbeddedEngine, plain: PlainModel, sampling: Sampling
) -> None:
    reply = ask(engine, prompt(50), sampling)
    assert len(reply.token_ids) == 30
    plain.assert_gave(prompt(50), sampling, reply)


def test_an_adapter_computes_what_merged_weights_compute(
    engine: EmbeddedEngine, network: Network, model_folder: Path, tmp_path: Path
) -> None:
    adapter = random_adapter(network, seed=7)
    adapter.save(tmp_path, "tiny")
    publish(engine, version_at(tmp_path, 1))
    merged = PlainModel(model_folder, adapter)
    greedy = ask(engine, prompt(40), GREEDY)
    assert greedy.version == 1
    assert greedy.token_ids == merged.greedy(prompt(40), GREEDY.max_tokens)
    assert greedy.token_ids != ask(engine, prompt(40), GREEDY, version=0).token_ids
    for sampling in SAMPLINGS.values():
        merged.assert_gave(prompt(40), sampling, ask(engine, prompt(40), sampling))


def test_requests_that_run_together_get_the_log_probs_they_would_get_alone(
    start_engine: StartEngine, plain: PlainModel
) -> None:
    engine = start_engine(max_concurrent=5, prefill_chunk=16)
    lengths = [3, 170, 1, 61, 16, 17, 90, 250, 2, 33]
    samplings = [*SAMPLINGS.values(), GREEDY] * 2
    requests = [(prompt(length), sampling) for length, sampling in zip(lengths, samplings, strict=False)]
    for (prompt_ids, sampling), reply in zip(requests, ask_together(engine, requests), strict=True):
        assert len(reply.token_ids) == sampling.max_tokens
        plain.assert_gave(prompt_ids, sampling, reply)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLINGS["temperature 1"], SAMPLINGS["both"]])
def test_a_seeded_reply_does_not_depend_on_what_shares_its_batch(
    start_engine: StartEngine, sampling: Sampling
) -> None:
    alone = ask(start_engine(), prompt(45), sampling)
    crowd = [(prompt(20 * index + 1), Sampling(seed=index, max_tokens=5 * index + 1)) for index in range(9)]
    crowd[4] = (prompt(45), sampling)
    crowded = ask_together(start_engine(max_concurrent=4, prefill_chunk=32), crowd)[4]
    assert crowded.token_ids == alone.token_ids
    assert crowded.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_one_token_prompts_can_begin_together(engine: EmbeddedEngine, plain: PlainModel) -> None:
    # Nothing was prefilled yet when their first tokens are decoded in one pass.
    replies = ask_together(engine, [((7,), GREEDY), ((8,), GREEDY)])
    assert [reply.token_ids for reply in replies] == [plain.greedy((first,), 24) for first in (7, 8)]


def test_without_a_seed_replies_differ(engine: EmbeddedEngine) -> None:
    unseeded = Sampling(max_tokens=20)
    first, second = (ask(engine, prompt(10), unseeded) for _ in range(2))
    assert first.token_ids != second.token_ids


def test_a_stop_token_ends_the_reply_and_is_part_of_it(
    start_engine: StartEngine, engine: EmbeddedEngine
) -> None:
    unstopped = ask(engine, prompt(12), GREEDY).token_ids
    stop_id = unstopped[5]
    stopped = ask(start_engine(frozenset({stop_id})), prompt(12), GREEDY)
    assert stopped.token_ids == unstopped[: unstopped.index(stop_id) + 1]
    assert stopped.finish == "stop"
