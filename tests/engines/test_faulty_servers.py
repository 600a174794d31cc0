"""Engines on servers that answer wrongly: untested adapters, impossible tokens, errors in the middle."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from engine_runs import PlainModel, prompt, written_version
from fastapi.responses import JSONResponse
from faulty_server import SIX, STOP, Faulty, ask, faulty, hang, losing_answers_of, streaming, vllm_token
from running_processes import eventually
from starlette.types import Receive, Scope, Send
from vllm_stand_in import BASE

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.engine import EngineError
from openclaw_rl.processes.engines import _connected


@pytest.fixture(params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest, model_folder: Path, tmp_path: Path) -> Iterator[Faulty]:
    with faulty(request.param, model_folder, tmp_path) as made:
        yield made


@pytest.fixture
def vllm(model_folder: Path, tmp_path: Path) -> Iterator[Faulty]:
    with faulty("vllm", model_folder, tmp_path) as made:
        yield made


@pytest.fixture
def sglang(model_folder: Path, tmp_path: Path) -> Iterator[Faulty]:
    with faulty("sglang", model_folder, tmp_path) as made:
        yield made


# A version that has not passed its test


def test_a_version_that_fails_its_test_after_a_restart_is_never_served(
    server: Faulty, network: Network, plain: Callable[[int], PlainModel]
) -> None:
    engine = server.engine()

    async def test() -> None:
        await engine.publish(written_version(network, server.folder, 1))
        server.state.restart()
        server.state.ignores_adapters = True
        for _ in range(3):
            with pytest.raises(EngineError, match="does not apply"):
                await ask(engine)
        with pytest.raises(EngineError, match="does not apply"):
            await engine.score(prompt(8), (5, 6))
        await asyncio.sleep(0.2)
        assert not any(name.endswith("-v1") for name in server.state.adapters), "it is unloaded again"
        server.state.ignores_adapters = False
        reply = await ask(engine)
        assert reply.version == 1
        assert reply.token_ids == plain(1).greedy(prompt(8), SIX.max_tokens)
        await engine.close()
        assert not server.state.adapters

    asyncio.run(test())


def test_a_version_whose_load_was_not_answered_is_tested_before_it_is_served(
    server: Faulty, network: Network
) -> None:
    engine = server.engine(wait_seconds=0)

    async def test() -> None:
        await engine.publish(written_version(network, server.folder, 1))
        server.state.restart()
        server.state.ignores_adapters = True
        server.instead[server.loads] = losing_answers_of(server.app)
        for _ in range(2):
            with pytest.raises(EngineError, match="cannot be reached"):
                await ask(engine)
        del server.instead[server.loads]
        with pytest.raises(EngineError, match="does not apply"):
            await ask(engine)
        await engine.close()
        assert not server.state.adapters

    asyncio.run(test())


# Replies


def test_an_adapter_that_is_gone_in_the_middle_of_a_reply_is_an_error_and_no_second_reply(
    vllm: Faulty,
) -> None:
    engine = vllm.engine()
    gone = {"error": {"message": "The model does not exist.", "code": 404}}
    vllm.instead[vllm.replies] = streaming(*map(vllm_token, (11, 12, 13)), gone)
    asked = vllm.asked
    seen: list[int] = []

    async def test() -> None:
        async for token in engine.generate(prompt(8), SIX):
            seen.append(token.token_id)  # noqa: PERF401 - a comprehension would lose them

    with pytest.raises(EngineError, match="has no adapter"):
        asyncio.run(test())
    assert seen == [11, 12, 13]
    assert vllm.asked == asked + 1


def test_a_server_that_goes_on_beyond_the_budget_is_left_there(vllm: Faulty) -> None:
    engine = vllm.engine()
    ended: list[str] = []

    async def endless() -> AsyncIterator[object]:
        try:
            while True:
                yield vllm_token(5)
                await asyncio.sleep(0)
        finally:
            ended.append("yes")

    vllm.instead[vllm.replies] = streaming(after=endless())

    async def test() -> None:
        reply = await ask(engine)
        assert (reply.token_ids, reply.finish) == ([5] * SIX.max_tokens, "length")
        # The server is told that nobody wants the rest.
        await asyncio.to_thread(eventually, lambda: bool(ended))

    asyncio.run(test())


def test_what_a_server_tells_after_a_stop_id_is_not_of_the_reply(vllm: Faulty) -> None:
    engine = vllm.engine()
    vllm.instead[vllm.replies] = streaming(*map(vllm_token, (7, STOP, 8)), vllm_token(9, finish="stop"))
    reply = asyncio.run(ask(engine))
    assert (reply.token_ids, reply.finish) == ([7, STOP], "stop")


def test_only_the_first_choice_is_read(vllm: Faulty) -> None:
    engine = vllm.engine()
    two = {"choices": [*vllm_token(6, index=1)["choices"], *vllm_token(5)["choices"]]}
    vllm.instead[vllm.replies] = streaming(two, {"choices": []}, vllm_token(7, finish="stop"))
    assert asyncio.run(ask(engine)).token_ids == [5, 7]


def test_a_log_prob_that_is_rounded_above_zero_is_zero(vllm: Faulty) -> None:
    engine = vllm.engine()
    vllm.instead[vllm.replies] = streaming(vllm_token(5, 5e-5, "stop"))
    assert asyncio.run(ask(engine)).logprobs == [0.0]


DEEP = b"[" * 200_000
BAD_OF_VLLM = {
    "choices null": {"choices": None},
    "choices of lists": {"choices": [[1]]},
    "a number for ids": vllm_token(5, token_ids=5),
    "no ids": {"choices": [{"text": "hello", "finish_reason": "stop"}]},
    "a list as finish": vllm_token(5, finish=["stop"]),
    "id as text": vllm_token("5", finish="stop"),
    "id with a fraction": vllm_token(5.5, finish="stop"),
    "id true": vllm_token(True, finish="stop"),
    "id too large": vllm_token(10**12, finish="stop"),
    "id below zero": vllm_token(-3, finish="stop"),
    "log-prob null": vllm_token(5, None, "stop"),
    "log-prob above zero": vllm_token(5, 3.0, "stop"),
    "log-prob as text": vllm_token(5, "-1", "stop"),
    "log-prob infinite": json.dumps(vllm_token(5, float("-inf"), "stop")).encode(),
    "log-prob of 400 digits": vllm_token(5, -(10**400), "stop"),
    "no object": [[1, 2]],
    "deep": DEEP,
    "half": b'{"choices":[{"token_ids":[5],',
}


def of_sglang(token: object, finish: object = None, **more: object) -> dict[str, object]:
    about = {"output_token_logprobs": [token], "completion_tokens": 1, "finish_reason": finish, **more}
    return {"meta_info": about}


BAD_OF_SGLANG = {
    "about null": {"meta_info": None},
    "id as text": of_sglang([-1.0, "5", None], {"type": "stop"}),
    "id with a fraction": of_sglang([-1.0, 5.5, None], {"type": "stop"}),
    "id too large": of_sglang([-1.0, 10**12, None], {"type": "stop"}),
    "log-prob null": of_sglang([None, 5, None], {"type": "stop"}),
    "log-prob above zero": of_sglang([2.0, 5, None], {"type": "stop"}),
    "a list as finish": of_sglang([-1.0, 5, None], {"type": ["stop"]}),
    "a text as finish": of_sglang([-1.0, 5, None], "stop"),
    "infinitely many": json.dumps(of_sglang([-1.0, 5, None], completion_tokens=float("inf"))).encode(),
    "deep": DEEP,
}


BAD = [
    pytest.param(kind, event, id=f"{kind}, {name}")
    for kind, events in (("vllm", BAD_OF_VLLM), ("sglang", BAD_OF_SGLANG))
    for name, event in events.items()
]


@pytest.mark.parametrize(("server", "event"), BAD, indirect=["server"])
def test_what_a_server_cannot_mean_is_an_error_of_the_engine(server: Faulty, event: object) -> None:
    engine = server.engine()
    server.instead[server.replies] = streaming(event)
    with pytest.raises(EngineError):
        asyncio.run(ask(engine))


def entry(token_id: int, logprob: object) -> dict[str, object]:
    return {str(token_id): {"logprob": logprob, "rank": 1}}


@pytest.mark.parametrize("logprob", [None, 1.0, "-1"])
def test_scores_that_cannot_be_are_an_error_of_the_engine(vllm: Faulty, logprob: object) -> None:
    engine = vllm.engine()
    told = [*[None] * 8, entry(5, -1.0), entry(6, logprob)]
    vllm.instead[vllm.replies] = JSONResponse({"choices": [{"prompt_logprobs": told}]})
    with pytest.raises(EngineError):
        asyncio.run(engine.score(prompt(8), (5, 6)))


@pytest.mark.parametrize("told", [{"data": [{"max_model_len": 8}]}, {"data": [[]]}, {"data": None}, [1]])
def test_a_list_of_models_in_another_form_is_an_error_of_the_engine(server: Faulty, told: object) -> None:
    server.instead["/v1/models"] = JSONResponse(told)
    with pytest.raises(EngineError, match="right kind"):
        server.engine()


# Servers that accept requests and never answer


def start(server: Faulty, folder: Path) -> None:
    settings = Settings(data_dir=folder, engine={"kind": server.kind, "url": server.url, "wait_seconds": 0.2})
    asyncio.run(
        asyncio.wait_for(_connected(server.server(), None, settings, server.model, frozenset({STOP})), 20)
    )


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, what takes seconds takes tenths of them."""

    def shorten() -> None:
        monkeypatch.setattr("openclaw_rl.policy.remote.http.QUICK_SECONDS", 1.5)
        monkeypatch.setattr("openclaw_rl.policy.remote.engine.LEAST_SECONDS", 0.6)
        monkeypatch.setattr("openclaw_rl.policy.remote.versions.CLOSE_SECONDS", 0.3)
        monkeypatch.setattr("openclaw_rl.policy.remote.trial.SECONDS", 2)

    return shorten


def test_the_start_waits_no_longer_than_the_settings_say_for_a_server_that_never_answers(
    server: Faulty, tmp_path: Path, hurry: Callable[[], None]
) -> None:
    hurry()
    for path, words in (("*", "--engine-url"), (server.replies, r"engine\.wait_seconds")):
        server.instead = {path: hang}
        begun = time.monotonic()
        with pytest.raises(ConfigError, match=words) as failed:
            start(server, tmp_path / "home")
        assert "did not answer" in str(failed.value)
        assert time.monotonic() - begun < 8


def test_a_request_waits_no_longer_than_the_settings_say_for_its_version_to_be_loaded_again(
    server: Faulty, network: Network, hurry: Callable[[], None]
) -> None:
    engine = server.engine(wait_seconds=0.5)

    async def test() -> None:
        await engine.publish(written_version(network, server.folder, 1))
        hurry()
        server.state.restart()
        server.instead[server.loads] = hang
        begun = time.monotonic()
        with pytest.raises(EngineError, match="did not load version 1 again in time"):
            await ask(engine)
        with pytest.raises(EngineError, match="did not load version 1 again in time"):
            await engine.score(prompt(8), (5, 6))
        assert time.monotonic() - begun < 8
        del server.instead[server.loads]
        engine._wait_seconds = 20
        assert (await ask(engine)).version == 1

    asyncio.run(test())


def test_an_engine_is_closed_soon_though_its_server_never_answers(
    server: Faulty, network: Network, hurry: Callable[[], None]
) -> None:
    engine = server.engine()

    async def test() -> None:
        for number in (1, 2):
            await engine.publish(written_version(network, server.folder, number), serve=False)
        hurry()
        server.instead["*"] = hang
        running = asyncio.create_task(ask(engine))
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        await engine.close()
        assert time.monotonic() - begun < 3
        with pytest.raises(EngineError, match="closed"):
            await running

    asyncio.run(test())


def test_a_test_that_is_not_answered_fails_and_the_old_version_serves(
    server: Faulty, network: Network, hurry: Callable[[], None]
) -> None:
    engine = server.engine()
    server.instead[server.replies] = hang
    hurry()

    async def test() -> None:
        with pytest.raises(EngineError, match="probes"):
            await engine.publish(written_version(network, server.folder, 1))
        server.instead.clear()
        assert (await ask(engine)).version == 0

    asyncio.run(test())


def test_a_reply_is_waited_for_as_long_as_a_busy_server_lets_it_wait(
    server: Faulty, hurry: Callable[[], None]
) -> None:
    engine = server.engine(wait_seconds=0.1)
    hurry()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(2)
        await server.app(scope, receive, send)

    server.instead[server.replies] = late
    assert len(asyncio.run(ask(engine)).token_ids) == SIX.max_tokens


# Servers of another kind


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("lacks_models", [False, True])
def test_a_server_without_the_routes_is_said_to_be_no_server_of_that_kind(
    server: Faulty, status: int, lacks_models: bool
) -> None:
    path = "/v1/models" if lacks_models else server.replies
    server.instead[path] = JSONResponse({"detail": "Not Found"}, status)
    name = server.server().name
    words = f"^{name} at {server.url} does not know {path}: it is no {name} server.*--engine-url"
    with pytest.raises(EngineError, match=words):
        server.engine()


def test_a_base_model_that_is_gone_is_not_taken_for_another_kind_of_server(vllm: Faulty) -> None:
    words = {"message": f"The model `{BASE}` does not exist.", "code": 404}
    vllm.instead[vllm.replies] = JSONResponse({"error": words}, 404)
    with pytest.raises(EngineError, match=r"refused a request .*does not exist"):
        vllm.engine()
