"""What every engine promises, whichever it is: the contract of policy/engine.py, one test a promise.

Log-probs are held against teacher-forced passes of the same weights in transformers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broken_versions import BREAKS, WHOLE_MODELS
from engine_runs import GREEDY, PlainModel, Reply, collect, prompt, version_at, written_version
from houses import House
from tiny_model import CONTEXT, IM_END, llama, save_model
from tokenizers import Tokenizer

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import (
    BadVersionError,
    EngineBusyError,
    EngineError,
    GrammarError,
    PolicyEngine,
    PromptTooLongError,
    UnknownVersionError,
)

TOLERANCE = 1e-3
"""Of a log-prob in float32, after at most some hundred tokens."""
SAMPLED = Sampling(temperature=1.0, max_tokens=20, seed=1, top_logprobs=3)
COOLER = Sampling(temperature=0.7, max_tokens=20, seed=2)
LONG = Sampling(temperature=0.8, max_tokens=30, seed=5)
ENDLESS = Sampling(temperature=0.8, max_tokens=250, seed=6)
RESTRICTED = {
    "top-p": Sampling(temperature=0.9, top_p=0.6, max_tokens=20, seed=3),
    "top-k": Sampling(temperature=1.3, top_k=5, max_tokens=20, seed=4),
}

Plain = Callable[[int], PlainModel]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def ask(
    engine: PolicyEngine, prompt_ids: tuple[int, ...], sampling: Sampling, version: int | None = None
) -> Reply:
    return await collect(engine.generate(prompt_ids, sampling, version))


def assert_of(model: PlainModel, prompt_ids: tuple[int, ...], sampling: Sampling, reply: Reply) -> None:
    """The recorded log-probs are that model's."""
    expected = model.logprobs(prompt_ids, reply.token_ids, sampling.temperature)
    assert reply.logprobs == pytest.approx(expected, abs=TOLERANCE)


# What is sampled and recorded


@pytest.mark.parametrize("length", [1, 2, 40, 300])
def test_greedy_tokens_are_those_of_a_plain_forward_pass(house: House, plain: Plain, length: int) -> None:
    async def test() -> None:
        reply = await ask(house.engine, prompt(length), GREEDY)
        assert reply.token_ids == plain(0).greedy(prompt(length), GREEDY.max_tokens)
        assert (reply.finish, reply.version) == ("length", 0)
        assert_of(plain(0), prompt(length), GREEDY, reply)

    run(test)


@pytest.mark.parametrize("sampling", [SAMPLED, COOLER])
def test_recorded_log_probs_are_those_of_the_full_vocabulary_at_the_temperature(
    house: House, plain: Plain, sampling: Sampling
) -> None:
    async def test() -> None:
        assert house.engine.unlearnable(sampling) == ""
        reply = await ask(house.engine, prompt(50), sampling)
        assert len(reply.token_ids) == sampling.max_tokens
        assert_of(plain(0), prompt(50), sampling, reply)

    run(test)


def test_the_likeliest_tokens_are_told_beside_the_sampled_one(house: House, plain: Plain) -> None:
    async def test() -> None:
        reply = await ask(house.engine, prompt(30), SAMPLED)
        logits = plain(0).logits([*prompt(30), *reply.token_ids])[29:-1]
        expected = logits.log_softmax(-1).topk(3)
        for row, told in enumerate(reply.alternatives):
            assert [token_id for token_id, _ in told] == expected.indices[row].tolist()
            assert [logprob for _, logprob in told] == pytest.approx(
                expected.values[row].tolist(), abs=TOLERANCE
            )

    run(test)


@pytest.mark.parametrize("sampling", RESTRICTED.values(), ids=RESTRICTED)
def test_what_top_p_and_top_k_leave_is_learned_from_only_where_its_log_probs_are_told_in_full(
    house: House, plain: Plain, sampling: Sampling
) -> None:
    async def test() -> None:
        reply = await ask(house.engine, prompt(50), sampling)
        full = plain(0).logits([*prompt(50), *reply.token_ids])[49:-1] / sampling.temperature
        if house.engine.unlearnable(sampling):
            assert house.engine.unlearnable(replace(sampling, top_p=1, top_k=0)) == ""
        else:
            assert_of(plain(0), prompt(50), sampling, reply)
        for scores, token_id in zip(full.softmax(-1), reply.token_ids, strict=True):
            better = scores[scores > scores[token_id]]
            assert float(better.sum()) < sampling.top_p
            assert len(better) < (sampling.top_k or len(scores))

    run(test)


def test_a_seed_gives_the_same_reply_again_alone_and_among_others(house: House) -> None:
    if not house.keeps_seeds:
        pytest.skip("this engine draws anew each time")

    async def test() -> None:
        alone = await ask(house.engine, prompt(45), SAMPLED)
        crowd = [ask(house.engine, prompt(20 * each + 1), replace(SAMPLED, seed=each)) for each in range(5)]
        crowded = (await asyncio.gather(ask(house.engine, prompt(45), SAMPLED), *crowd))[0]
        assert crowded.token_ids == alone.token_ids
        other = await ask(house.engine, prompt(45), replace(SAMPLED, seed=99))
        assert other.token_ids != alone.token_ids

    run(test)


def test_without_a_seed_replies_differ(house: House) -> None:
    async def test() -> None:
        first, second = [await ask(house.engine, prompt(10), Sampling(max_tokens=20)) for _ in range(2)]
        assert first.token_ids != second.token_ids

    run(test)


def test_a_stop_token_ends_the_reply_and_is_part_of_it(
    open_house: Callable[..., House], plain: Plain
) -> None:
    unstopped = plain(0).greedy(prompt(12), 24)
    stop_id = unstopped[5]

    async def test() -> None:
        reply = await ask(house.engine, prompt(12), replace(GREEDY, max_tokens=24))
        assert reply.token_ids == unstopped[: unstopped.index(stop_id) + 1]
        assert reply.finish == "stop"
        assert_of(plain(0), prompt(12), GREEDY, reply)

    house = open_house(stop_ids=frozenset({stop_id}))
    run(test)


def test_given_tokens_are_scored_as_they_would_have_been_recorded(
    house: House, network: Network, plain: Plain
) -> None:
    async def test() -> None:
        await house.engine.publish(written_version(network, house.folder, 1))
        for number in (0, 1):
            drawn = await ask(house.engine, prompt(25), SAMPLED, number)
            reply_ids = tuple(drawn.token_ids)
            scored = await house.engine.score(prompt(25), reply_ids, top_logprobs=3, version=number)
            assert [token.token_id for token in scored] == drawn.token_ids
            assert [token.logprob for token in scored] == pytest.approx(drawn.logprobs, abs=TOLERANCE)
            for token, told in zip(scored, drawn.alternatives, strict=True):
                assert dict(token.alternatives) == pytest.approx(dict(told), abs=TOLERANCE)
                assert token.finish is None
            rare = (7, 250, 31)
            expected = plain(number).logprobs(prompt(25), rare, 1.0)
            scored = await house.engine.score(prompt(25), rare, version=number)
            assert [token.logprob for token in scored] == pytest.approx(expected, abs=TOLERANCE)

    run(test)


# Limits


def test_a_prompt_that_fills_the_context_is_refused_with_its_numbers(house: House) -> None:
    async def test() -> None:
        assert house.engine.context_length == CONTEXT
        with pytest.raises(PromptTooLongError) as refused:
            house.engine.generate(prompt(CONTEXT), GREEDY)
        assert (refused.value.prompt_tokens, refused.value.context_length) == (CONTEXT, CONTEXT)
        with pytest.raises(PromptTooLongError):
            await house.engine.score(prompt(CONTEXT), (5, 6))
        with pytest.raises(EngineError):
            house.engine.generate((), GREEDY)

    run(test)


def test_the_budget_is_cut_to_what_the_context_leaves(open_house: Callable[..., House], plain: Plain) -> None:
    async def test() -> None:
        assert house.engine.context_length == 100
        reply = await ask(house.engine, prompt(95), replace(GREEDY, max_tokens=50))
        assert (reply.token_ids, reply.finish) == (plain(0).greedy(prompt(95), 5), "length")

    house = open_house(context_length=100)
    run(test)


def test_more_requests_than_may_wait_are_refused_and_the_rest_served(
    open_house: Callable[..., House],
) -> None:
    async def test() -> None:
        running = [house.engine.generate(prompt(4), GREEDY) for _ in range(4)]
        with pytest.raises(EngineBusyError):
            house.engine.generate(prompt(4), GREEDY)
        replies = await asyncio.gather(*(collect(generation) for generation in running))
        assert len({tuple(reply.token_ids) for reply in replies}) == 1
        assert (await ask(house.engine, prompt(4), GREEDY)).token_ids == replies[0].token_ids

    house = open_house(max_concurrent=2, max_waiting=2)
    run(test)


def test_a_cancelled_request_frees_what_it_held_and_others_go_on(house: House, plain: Plain) -> None:
    async def test() -> None:
        endless = house.engine.generate(prompt(4), ENDLESS)
        other = asyncio.create_task(ask(house.engine, prompt(20), LONG))
        async for _ in endless:
            break
        endless.cancel()
        assert_of(plain(0), prompt(20), LONG, await other)
        async with asyncio.timeout(10):
            while house.running():
                await asyncio.sleep(0.05)
        endless.cancel()
        # Also one of which nobody has read a token.
        house.engine.generate(prompt(5), ENDLESS).cancel()
        async with asyncio.timeout(10):
            while house.running():
                await asyncio.sleep(0.05)
        assert_of(plain(0), prompt(9), LONG, await ask(house.engine, prompt(9), LONG))

    run(test)


def test_a_token_that_is_none_fails_its_request_alone(house: House) -> None:
    async def test() -> None:
        with pytest.raises(EngineError):
            await ask(house.engine, (5, 10**6, 5), GREEDY)
        with pytest.raises(EngineError):
            await house.engine.score((5, 6), (10**6,))
        assert len((await ask(house.engine, prompt(5), GREEDY)).token_ids) == 24

    run(test)


def test_a_reply_under_a_grammar_matches_it_or_is_refused(
    open_house: Callable[..., House], model_folder: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    house = open_house(stop_ids=frozenset({tokenizer.token_to_id(IM_END)}))
    grammar = 'start: "yes" | "no" "!"'

    async def test() -> None:
        with pytest.raises(GrammarError):
            await house.engine.prepare_grammar("start: nothing")
        if not house.reads_grammars:
            with pytest.raises(GrammarError):
                house.engine.generate(prompt(9), Sampling(grammar=grammar))
            return
        held = await house.engine.prepare_grammar(grammar)
        assert held is not None
        for seed in range(3):
            reply = await ask(house.engine, prompt(9), Sampling(max_tokens=20, seed=seed, grammar=grammar))
            assert tokenizer.decode(reply.token_ids) in ("yes", "no!")
            assert reply.finish == "stop"

    run(test)


# Versions


def test_requests_of_three_versions_at_once_each_get_their_own_log_probs(
    house: House, network: Network, plain: Plain
) -> None:
    async def test() -> None:
        for number in (1, 2):
            await house.engine.publish(written_version(network, house.folder, number), serve=False)
        # Twice, and with one prompt for all: what is kept of it for one version must not serve another.
        for _ in range(2):
            asked = [(number, prompt(40 + extra)) for extra in (0, 5) for number in (0, 1, 2)]
            replies = await asyncio.gather(*(ask(house.engine, ids, LONG, number) for number, ids in asked))
            for (number, prompt_ids), reply in zip(asked, replies, strict=True):
                assert reply.version == number
                assert_of(plain(number), prompt_ids, LONG, reply)

    run(test)


def test_the_base_stays_the_base_beside_many_versions(house: House, network: Network, plain: Plain) -> None:
    async def test() -> None:
        for number in range(1, 7):
            await house.engine.publish(written_version(network, house.folder, number))
        newest, base = await asyncio.gather(
            ask(house.engine, prompt(30), LONG), ask(house.engine, prompt(30), LONG, 0)
        )
        assert (newest.version, base.version) == (6, 0)
        assert_of(plain(6), prompt(30), LONG, newest)
        assert_of(plain(0), prompt(30), LONG, base)

    run(test)


def test_a_running_request_finishes_on_its_version_while_new_ones_get_the_published_one(
    house: House, network: Network, plain: Plain
) -> None:
    async def test() -> None:
        running = [house.engine.generate(prompt(30), LONG)]
        replies = [asyncio.create_task(collect(running[0]))]
        for number in (1, 2):
            await house.engine.publish(written_version(network, house.folder, number))
            assert house.engine.serving_version == number
            running.append(house.engine.generate(prompt(30), LONG))
            replies.append(asyncio.create_task(collect(running[-1])))
        assert [generation.version for generation in running] == [0, 1, 2]
        for number, reply in enumerate(await asyncio.gather(*replies)):
            assert_of(plain(number), prompt(30), LONG, reply)

    run(test)


def test_a_second_turn_goes_on_with_the_new_version_alone(
    house: House, network: Network, plain: Plain
) -> None:
    async def test() -> None:
        first = await ask(house.engine, prompt(80), LONG)
        second_prompt = (*prompt(80), *first.token_ids, *prompt(20, seed=1))
        await house.engine.publish(written_version(network, house.folder, 1))
        assert_of(plain(1), second_prompt, LONG, await ask(house.engine, second_prompt, LONG))
        assert_of(plain(0), second_prompt, LONG, await ask(house.engine, second_prompt, LONG, 0))

    run(test)


def test_going_back_to_the_base_needs_no_files(house: House, network: Network, plain: Plain) -> None:
    async def test() -> None:
        await house.engine.publish(written_version(network, house.folder, 1))
        await house.engine.publish(version_at(None, 0))
        assert house.engine.serving_version == 0
        reply = await ask(house.engine, prompt(20), GREEDY)
        assert reply.token_ids == plain(0).greedy(prompt(20), 24)

    run(test)


def test_an_old_version_is_unloaded_once_its_last_request_has_ended(
    house: House, network: Network, plain: Plain
) -> None:
    async def test() -> None:
        await house.engine.publish(written_version(network, house.folder, 1))
        slow = asyncio.create_task(ask(house.engine, prompt(10), ENDLESS))
        last = house.keeps_old + 4
        for number in range(2, last + 1):
            await house.engine.publish(written_version(network, house.folder, number))
        assert not slow.done()
        assert _loaded(house.engine, last) == [0, 1, *range(last - house.keeps_old, last + 1)]
        assert_of(plain(1), prompt(10), ENDLESS, await slow)
        await house.engine.publish(written_version(network, house.folder, last + 1))
        async with asyncio.timeout(5):
            while 1 in _loaded(house.engine, last + 1):
                await asyncio.sleep(0.05)

    run(test)


def _loaded(engine: PolicyEngine, most: int) -> list[int]:
    return [number for number in range(most + 1) if _is_loaded(engine, number)]


def _is_loaded(engine: PolicyEngine, number: int) -> bool:
    try:
        engine.generate(prompt(3), Sampling(max_tokens=1), number).cancel()
    except UnknownVersionError:
        return False
    return True


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda each: each.__name__.strip("_"))
def test_a_broken_version_is_refused_and_the_old_one_serves(
    house: House, network: Network, plain: Plain, break_it: Callable[[Path], None]
) -> None:
    async def test() -> None:
        await house.engine.publish(written_version(network, house.folder, 1))
        broken = written_version(network, house.folder, 2)
        break_it(house.folder / "000002")
        talking = asyncio.create_task(ask(house.engine, prompt(33), LONG))
        becomes_model = break_it in WHOLE_MODELS
        with pytest.raises(EngineError if becomes_model and not house.takes_models else BadVersionError):
            await house.engine.publish(broken)
        assert house.engine.serving_version == 1
        assert_of(plain(1), prompt(33), LONG, await talking)
        with pytest.raises(UnknownVersionError):
            house.engine.generate(prompt(20), GREEDY, 2)
        await house.engine.publish(written_version(network, house.folder, 3))
        assert_of(plain(3), prompt(20), LONG, await ask(house.engine, prompt(20), LONG))

    run(test)


def test_a_whole_model_is_a_version_or_refused(house: House) -> None:
    async def test() -> None:
        folder = save_model(
            house.folder / "000001", llama(hidden_size=128, head_dim=32, initializer_range=0.2)
        )
        if house.takes_models:
            await house.engine.publish(version_at(folder, 1))
            reply = await ask(house.engine, prompt(30), GREEDY)
            assert reply.token_ids == PlainModel(folder).greedy(prompt(30), 24)
        else:
            # Refused, and not the version's fault: another engine can serve it.
            with pytest.raises(EngineError, match="whole model") as refused:
                await house.engine.publish(version_at(folder, 1))
            assert not isinstance(refused.value, BadVersionError)

    run(test)


def test_a_version_that_cannot_be_read_just_now_is_no_fault_of_its_own(house: House) -> None:
    async def test() -> None:
        with pytest.raises(EngineError, match="is missing") as failed:
            await house.engine.publish(version_at(house.folder / "unmounted" / "000001", 1))
        assert not isinstance(failed.value, BadVersionError)

    run(test)


def test_a_server_that_was_started_anew_gets_its_versions_again(
    house: House, network: Network, plain: Plain
) -> None:
    if house.restart is None:
        pytest.skip("this engine is no server")
    restart = house.restart

    async def test() -> None:
        for number in (1, 2):
            await house.engine.publish(written_version(network, house.folder, number), serve=number == 2)
        await asyncio.to_thread(restart)
        asked = [0, 1, 2, 2]
        replies = await asyncio.gather(*(ask(house.engine, prompt(40), LONG, number) for number in asked))
        for number, reply in zip(asked, replies, strict=True):
            assert_of(plain(number), prompt(40), LONG, reply)
        await house.engine.publish(written_version(network, house.folder, 3))
        assert_of(plain(3), prompt(40), LONG, await ask(house.engine, prompt(40), LONG))

    run(test)


def test_whoever_reads_a_cancelled_reply_comes_to_its_end(house: House) -> None:
    async def test() -> None:
        running = house.engine.generate(prompt(10), ENDLESS)
        tokens = aiter(running)
        await anext(tokens)
        running.cancel()
        async with asyncio.timeout(10):
            async for _ in tokens:
                pass  # what was made before it was cancelled

    run(test)


def test_a_closed_engine_fails_what_runs_and_takes_nothing_more(house: House) -> None:
    async def test() -> None:
        running = house.engine.generate(prompt(10), ENDLESS)
        await anext(aiter(running))
        await house.engine.close()
        with pytest.raises(EngineError, match="closed"):
            await collect(running)
        with pytest.raises(EngineError, match="closing"):
            house.engine.generate(prompt(10), GREEDY)
        with pytest.raises(EngineError, match="closing"):
            await house.engine.publish(version_at(None, 0))

    run(test)
