"""The bench of serving: its arithmetic, and the model whose replies never end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.config import ConfigError, LearnSettings
from openclaw_rl.evals.results import read
from openclaw_rl.evals.serve_bench import endless
from openclaw_rl.evals.serve_bench.http_streams import Streamed, lines
from openclaw_rl.evals.serve_bench.learning import figures
from openclaw_rl.evals.serve_bench.measure import Pass
from openclaw_rl.evals.serve_bench.plan import Plan
from openclaw_rl.evals.serve_bench.reuse import long_message
from openclaw_rl.evals.serve_bench.summary import of_passes, ratios
from openclaw_rl.policy.chat_template import ChatTemplate


def at(rate: float, first: float = 0.1) -> Pass:
    return Pass(seconds=2.0, tokens=round(2 * rate), first_token_seconds=(first,), longest_gap_seconds=0.5)


def test_a_pass_is_read_off_the_moments_when_tokens_came() -> None:
    one = Pass.of(10.0, [[11.0, 11.5, 14.0], [10.5, 12.5]], tokens=5)
    assert one == Pass(4.0, 5, (1.0, 0.5), 2.5)
    assert one.tokens_per_second == 1.25
    assert Pass.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_line_came_when_its_last_piece_did() -> None:
    pieces = [(1.0, b"data: one\r\ndata: t"), (2.0, b"w"), (3.0, "ö\u2028\n\nda".encode())]
    assert list(lines(pieces)) == [
        (1.0, b"data: one"),
        (3.0, "data: twö\u2028".encode()),
        (3.0, b""),
    ]


def test_ratios_are_of_medians_over_rounds() -> None:
    ours = {1: [at(30), at(10), at(20)], 8: [at(100), at(300), at(200)]}
    theirs = {1: [at(10), at(10), at(1)], 8: [at(50), at(40), at(60)]}
    best = {1: [at(25)], 8: [at(400)]}
    part = of_passes({"engine": ours, "engine_lora": ours, "generate": theirs, "products": best})
    assert part["contenders"]["engine"]["8"]["tokens_per_second"] == 200
    assert ratios({"engine": part}) == {
        "vs_generate_1": 2.0,
        "vs_generate_8": 4.0,
        "lora_tokens_1": 1.0,
        "lora_tokens_8": 1.0,
        "of_products_1": 0.8,
        "of_products_8": 0.5,
        "products_vs_generate_1": 2.5,
        "products_vs_generate_8": 8.0,
    }


def test_the_gateway_is_beside_the_engine_that_was_measured_with_it() -> None:
    found = {"engine": {1: [at(20)], 8: [at(100)]}, "gateway": {1: [at(19)], 8: [at(97)]}}
    part = of_passes(found, {"engine": [0.05, 0.04, 0.9], "gateway": [0.056, 0.058, 0.01]})
    assert ratios({"gateway": part}) == {
        "gateway_tokens_1": 0.95,
        "gateway_tokens_8": 0.97,
        "gateway_tokens": 0.97,
        "gateway_first_token_ms": 6.0,
    }


def test_vllm_is_beside_our_server_with_and_without_an_adapter() -> None:
    found = {
        "gateway": {1: [at(30)]},
        "gateway_lora": {1: [at(24)]},
        "vllm": {1: [at(20)]},
        "vllm_lora": {1: [at(8)]},
    }
    assert ratios({"vllm": of_passes(found)}) == {"vs_vllm_1": 1.5, "vs_vllm_lora_1": 3.0}


def test_beside_a_busy_program_threads_that_spin_are_beside_those_that_sleep() -> None:
    rates = {"engine": 40, "engine_busy": 30, "sleeping": 20, "sleeping_busy": 24}
    part = of_passes({name: {8: [at(rate)]} for name, rate in rates.items()})
    assert ratios({"busy": part}) == {"busy_8": 0.75, "vs_sleeping_8": 2.0, "vs_sleeping_busy_8": 1.25}


def test_the_other_parts_have_ratios_of_their_own() -> None:
    reuse = {"long": 4096, "with": {"first_token_ms": 200.0}, "without": {"first_token_ms": 1500.0}}
    learning = {
        "alone": {"tokens_per_second": 100.0, "longest_gap_ms": 50.0},
        "learning": {"tokens_per_second": 65.0, "longest_gap_ms": 300.0},
    }
    memory = {"sessions_mb": [(125, 700.0), (500, 900.0), (1000, 901.5)]}
    assert ratios({"reuse": reuse, "learning": learning, "memory": memory}) == {
        "reuse_4k": 7.5,
        "while_learning": 0.65,
        "longest_gap_learning_ms": 300.0,
        "memory_growth_mb": 1.5,
    }


def test_tokens_count_when_they_came_during_an_update_and_gaps_when_they_touch_one() -> None:
    # By the clock of the updates: 100, 101, 104, 110; two tokens in each piece of text.
    reply = Streamed(arrivals=[0.0, 1.0, 4.0, 10.0], tokens=8)
    assert figures([reply], [(100.5, 104.5)], ahead=100.0) == {
        "tokens_per_second": 1.0,
        "longest_gap_ms": 6000.0,
    }
    assert figures([reply], [(98.0, 100.5)], ahead=100.0)["longest_gap_ms"] == 1000.0
    # A swap may come some time after its update.
    assert figures([reply], [(98.0, 100.5)], 100.0, after=1.0)["longest_gap_ms"] == 3000.0


def test_replies_of_the_endless_model_have_no_end_and_prompts_are_the_same(
    model_folder: Path, tmp_path: Path
) -> None:
    before = ChatTemplate.load(model_folder)
    after = ChatTemplate.load(endless.make(model_folder, tmp_path / "endless"))
    assert before.stop_ids
    assert not after.stop_ids
    chat = [
        {"role": "user", "content": "What is the capital?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "Sure?"},
    ]
    assert after.prompt_ids(chat) == before.prompt_ids(chat)
    weights = tmp_path / "endless" / "model.safetensors"
    assert weights.resolve() == (model_folder / "model.safetensors").resolve()


def test_the_long_message_is_as_long_as_asked_within_a_sentence(model_folder: Path) -> None:
    template = ChatTemplate.load(model_folder)
    made = long_message(template, "Report 1", 400)
    assert 370 < len(template.prompt_ids([{"role": "user", "content": made}])) <= 400


@pytest.mark.parametrize("content", ["[]", '{"ratio": 1}', "{", '{"ratios": 3}'])
def test_an_earlier_result_that_is_none_is_refused_by_name(content: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"--compare .*other\.json is no result of `bench serve`"):
        read(file, "bench serve")


@pytest.mark.parametrize(
    ("streams", "over_http"), [((1, 4, 8, 16), (1, 8)), ((1, 2), (1, 2)), ((4,), (4,)), ((16,), (16,))]
)
def test_servers_are_measured_with_one_stream_and_with_eight_at_most(
    streams: tuple[int, ...], over_http: tuple[int, ...], tmp_path: Path
) -> None:
    plan = Plan(
        settings={},
        model_folder=tmp_path,
        adapter_folder=tmp_path,
        context=512,
        dtype="float32",
        device="cpu",
        threads=1,
        streams=streams,
        tokens=4,
        rounds=1,
        long=100,
        learn=LearnSettings(),
        updates=1,
        sessions=(1,),
        scratch=tmp_path,
    )
    assert plan.over_http == over_http
    assert plan.job("Round 1", 2).prompts == plan.job("Round 1", 2).prompts
    assert not set(plan.job("Round 1", 2).prompts) & set(plan.job("Round 2", 2).prompts)
