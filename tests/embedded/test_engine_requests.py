"""What the engine promises to those who ask: limits, numbers in errors, cancelling, reuse of prefixes."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest
from engine_runs import (
    GREEDY,
    PlainModel,
    Reply,
    StartEngine,
    ask,
    collect,
    prompt,
    publish,
    written_version,
)
from tiny_model import CONTEXT

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.arena import Arena
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.engine import EmbeddedEngine
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import EngineBusyError, EngineError, PromptTooLongError


def test_the_context_length_is_the_models_unless_less_is_asked(start_engine: StartEngine) -> None:
    assert start_engine().context_length == CONTEXT
    assert start_engine(context_length=100).context_length == 100
    assert start_engine(context_length=CONTEXT + 1).context_length == CONTEXT


def test_a_prompt_that_fills_the_context_is_refused_with_its_numbers(engine: EmbeddedEngine) -> None:
    with pytest.raises(PromptTooLongError) as refused:
        ask(engine, prompt(CONTEXT), GREEDY)
    assert (refused.value.prompt_tokens, refused.value.context_length) == (CONTEXT, CONTEXT)
    assert f"{CONTEXT} tokens" in str(refused.value)


def test_an_empty_prompt_is_refused(engine: EmbeddedEngine) -> None:
    with pytest.raises(EngineError):
        ask(engine, (), GREEDY)


def test_the_budget_is_cut_to_what_the_context_leaves(engine: EmbeddedEngine, plain: PlainModel) -> None:
    reply = ask(engine, prompt(CONTEXT - 5), Sampling(temperature=0, max_tokens=100))
    assert (len(reply.token_ids), reply.finish) == (5, "length")
    assert reply.token_ids == plain.greedy(prompt(CONTEXT - 5), 5)


def test_more_requests_than_may_wait_are_refused_and_the_rest_served(start_engine: StartEngine) -> None:
    engine = start_engine(max_concurrent=2, max_waiting=3)

    async def flood() -> None:
        running = [engine.generate(prompt(4), GREEDY) for _ in range(5)]
        with pytest.raises(EngineBusyError):
            engine.generate(prompt(4), GREEDY)
        replies = await asyncio.gather(*(collect(generation) for generation in running))
        assert len({tuple(reply.token_ids) for reply in replies}) == 1
        assert len((await collect(engine.generate(prompt(4), GREEDY))).token_ids) == 24

    asyncio.run(flood())


def test_with_no_waiting_places_all_running_places_can_be_taken_at_once(start_engine: StartEngine) -> None:
    engine = start_engine(max_concurrent=3, max_waiting=0)

    async def fill() -> None:
        running = [engine.generate(prompt(4), GREEDY) for _ in range(3)]
        with pytest.raises(EngineBusyError):
            engine.generate(prompt(4), GREEDY)
        await asyncio.gather(*(collect(generation) for generation in running))

    asyncio.run(fill())


def test_a_cancelled_request_makes_room_for_one_that_waits(start_engine: StartEngine) -> None:
    engine = start_engine(max_concurrent=1)

    async def cancel_the_first() -> None:
        first = engine.generate(prompt(4), Sampling(max_tokens=500))
        waiting = engine.generate(prompt(5), GREEDY)
        async for _ in first:
            break
        first.cancel()
        assert (await collect(waiting)).finish == "length"
        first.cancel()

    asyncio.run(cancel_the_first())
    assert engine.sampled_tokens < 400


def test_a_step_that_fails_ends_its_requests_and_not_the_engine(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def roll(self) -> float:
            raise ArithmeticError

    monkeypatch.setattr("openclaw_rl.policy.embedded.engine.Dice", lambda _: Broken())
    with pytest.raises(EngineError, match="failed"):
        ask(engine, prompt(5), Sampling(max_tokens=5))
    monkeypatch.undo()
    assert len(ask(engine, prompt(5), GREEDY).token_ids) == 24


UNFIT = [
    ((5, -1), GREEDY),
    ((5, 10**6), GREEDY),
    (prompt(5), Sampling(temperature=1e-38)),
    (prompt(5), Sampling(temperature=-1)),
    (prompt(5), Sampling(temperature=float("nan"))),
    (prompt(5), Sampling(temperature=float("inf"))),
    (prompt(5), Sampling(top_p=0)),
    (prompt(5), Sampling(top_k=-1)),
    (prompt(5), Sampling(max_tokens=0)),
    (prompt(5), Sampling(top_logprobs=-1)),
]


@pytest.mark.parametrize(("tokens", "sampling"), UNFIT)
def test_a_request_that_would_spoil_a_step_for_all_is_refused_alone(
    engine: EmbeddedEngine, tokens: tuple[int, ...], sampling: Sampling
) -> None:
    async def beside_another() -> Reply:
        running = engine.generate(prompt(6), GREEDY)
        with pytest.raises(EngineError):
            await collect(engine.generate(tokens, sampling))
        return await collect(running)

    assert len(asyncio.run(beside_another()).token_ids) == 24


def test_a_failure_while_rows_are_moved_leaves_nobody_waiting(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(max_concurrent=2)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Arena, "move", fail)

    async def two() -> list[Reply | BaseException]:
        with engine._changed:  # or the first might end before the second begins, and no row is moved
            short = engine.generate(prompt(4), Sampling(temperature=0, max_tokens=2))
            long = engine.generate(prompt(5), GREEDY)
        return await asyncio.gather(collect(short), collect(long), return_exceptions=True)

    failed = asyncio.run(asyncio.wait_for(two(), 30))
    assert all(isinstance(one, EngineError) for one in failed)
    monkeypatch.undo()
    assert len(ask(engine, prompt(5), GREEDY).token_ids) == 24


def test_cores_that_cannot_be_shared_in_a_step_fail_its_requests_and_not_the_engine(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    adjust, calls = CoreShare.adjust, count()

    def fail_once(share: CoreShare) -> None:
        if next(calls) == 1:
            raise OSError("no locks available")
        adjust(share)

    monkeypatch.setattr(CoreShare, "adjust", fail_once)
    with pytest.raises(EngineError, match="failed"):
        ask(engine, prompt(5), GREEDY)
    assert len(ask(engine, prompt(5), GREEDY).token_ids) == 24


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_whose_thread_has_ended_refuses_instead_of_hanging(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: CoreShare) -> None:
        raise OSError("no locks available")

    async def one() -> Reply:
        return await asyncio.wait_for(collect(engine.generate(prompt(5), GREEDY)), 30)

    monkeypatch.setattr(CoreShare, "working", fail)
    for _ in range(2):
        with pytest.raises(EngineError, match="clos"):
            asyncio.run(one())


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.7, max_tokens=24, seed=9)])
def test_a_second_turn_computes_only_what_is_new(
    start_engine: StartEngine, plain: PlainModel, sampling: Sampling
) -> None:
    engine = start_engine()
    first = ask(engine, prompt(80), sampling)
    second_prompt = (*prompt(80), *first.token_ids, *prompt(20, seed=1))
    second = ask(engine, second_prompt, sampling)
    # All but the last sampled token, which was never fed to the model.
    assert engine.reused_tokens == 80 + 24 - 1
    fresh = ask(start_engine(), second_prompt, sampling)
    assert second.token_ids == fresh.token_ids
    assert second.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)
    plain.assert_gave(second_prompt, sampling, second)


def test_the_same_prompt_again_still_computes_its_last_token(
    engine: EmbeddedEngine, plain: PlainModel
) -> None:
    ask(engine, prompt(50), GREEDY)
    assert ask(engine, prompt(50), GREEDY).token_ids == plain.greedy(prompt(50), 24)
    assert engine.reused_tokens == 49


def test_a_prompt_that_departs_reuses_only_what_is_common(engine: EmbeddedEngine, plain: PlainModel) -> None:
    ask(engine, prompt(60), GREEDY)
    other = (*prompt(60)[:30], *prompt(30, seed=2))
    assert ask(engine, other, GREEDY).token_ids == plain.greedy(other, 24)
    assert engine.reused_tokens == 30


def test_what_was_computed_before_a_hang_up_is_reused(engine: EmbeddedEngine) -> None:
    async def hang_up() -> None:
        generation = engine.generate(prompt(90), Sampling(max_tokens=400))
        async for _ in generation:
            break
        generation.cancel()

    asyncio.run(hang_up())
    ask(engine, prompt(90), GREEDY)
    assert engine.reused_tokens == 89


def test_nothing_is_reused_across_versions(engine: EmbeddedEngine, network: Network, tmp_path: Path) -> None:
    ask(engine, prompt(50), GREEDY)
    publish(engine, written_version(network, tmp_path, 1))
    ask(engine, prompt(50), GREEDY)
    assert engine.reused_tokens == 0
    ask(engine, prompt(50), GREEDY, version=0)
    assert engine.reused_tokens == 49


def test_without_a_cache_nothing_is_kept(start_engine: StartEngine) -> None:
    engine = start_engine(cache_tokens=0)
    for _ in range(2):
        ask(engine, prompt(50), GREEDY)
    assert engine.reused_tokens == 0


def test_the_least_recently_used_prefix_goes_first(start_engine: StartEngine) -> None:
    engine = start_engine(cache_tokens=160)
    one = Sampling(temperature=0, max_tokens=1)

    def reused_by(seed: int) -> int:
        before = engine.reused_tokens
        ask(engine, prompt(50, seed=seed), one)
        return engine.reused_tokens - before

    assert [reused_by(seed) for seed in (1, 2, 3)] == [0, 0, 0]
    assert reused_by(1) == 49
    assert reused_by(4) == 0  # 2 had to go
    assert [reused_by(seed) for seed in (3, 1, 4)] == [49, 49, 49]
    assert reused_by(2) == 0
