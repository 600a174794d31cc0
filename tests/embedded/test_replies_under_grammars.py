"""Replies under a grammar, on the real engine: kept to the end, beside free replies, and told as they are."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_runs import PlainModel, StartEngine, ask, ask_together, collect, prompt
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from openclaw_rl.config import EMBEDDED_MODEL
from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded import grammar as grammar_module
from openclaw_rl.policy.embedded import trial
from openclaw_rl.policy.embedded.engine import EmbeddedEngine
from openclaw_rl.policy.embedded.grammar import (
    COMPILED_AT_ONCE,
    KEPT_GRAMMARS,
    LONGEST_GRAMMAR,
    Compiled,
    Grammars,
)
from openclaw_rl.policy.embedded.model_files import resolve
from openclaw_rl.policy.engine import EngineBusyError, EngineError, GrammarError

STOP = frozenset({2})
SHORT = {"type": "string", "maxLength": 5}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"city": SHORT, "unit": {"enum": ["C", "F"]}}, "required": ["unit"],
     "additionalProperties": False},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2,
     "maxItems": 4},
    {"$defs": {"leaf": {"type": "object", "properties": {"on": {"type": "boolean"}, "as": SHORT},
     "required": ["on"], "additionalProperties": False}}, "type": "array", "items": {"$ref": "#/$defs/leaf"},
     "minItems": 1, "maxItems": 2},
    {"anyOf": [{"const": "é\n\"🙂"}, {"type": "null"}, {"enum": [1.5, [2]]}]},
]  # fmt: skip


WIDE = {
    "type": "object",
    "properties": {f"p{place}": {"type": "string"} for place in range(1500)},
    "additionalProperties": False,
}


def hard(number: int) -> str:
    """Small, and it takes minutes to compile."""
    factors = {"allOf": [{"multipleOf": factor} for factor in (31, 37, 41, 43)]}
    return json_grammar({"type": "integer", "minimum": -number - 1, **factors})


def json_grammar(schema: dict[str, Any]) -> str:
    options = {"x-guidance": {"whitespace_pattern": "[ \n]{1,2}"}}
    return f"start: %json {json.dumps({**schema, **options}, ensure_ascii=False)}"


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_folder / "tokenizer.json"))


@pytest.fixture
def stopping(start_engine: StartEngine) -> EmbeddedEngine:
    return start_engine(STOP)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_a_reply_is_valid_and_ends_with_the_end_of_turn(
    stopping: EmbeddedEngine, tokenizer: Tokenizer, schema: dict[str, Any], temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=200, seed=3, grammar=json_grammar(schema))
    reply = ask(stopping, prompt(12), sampling)
    assert (reply.finish, reply.token_ids[-1]) == ("stop", 2)
    text = tokenizer.decode(reply.token_ids[:-1], skip_special_tokens=False)
    Draft202012Validator(schema).validate(json.loads(text))
    assert ask(stopping, prompt(12), sampling).token_ids == reply.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_recorded_log_probs_are_the_policys_own(
    stopping: EmbeddedEngine, plain: PlainModel, temperature: float
) -> None:
    sampling = Sampling(
        temperature=temperature,
        top_p=0.5,
        top_k=5,
        seed=1,
        max_tokens=30,
        grammar='start: "The sea!" /[a-z]{4}/',
    )
    reply = ask(stopping, prompt(20), sampling)
    plain.assert_gave(prompt(20), sampling, reply)
    assert min(reply.logprobs) < -2, "it was made to say what it would not have said"


def test_greedy_takes_the_likeliest_token_that_is_allowed(
    stopping: EmbeddedEngine, plain: PlainModel, tokenizer: Tokenizer
) -> None:
    reply = ask(stopping, prompt(9), Sampling(temperature=0, max_tokens=9, grammar="start: /[xyz]{4}/"))
    letters = [tokenizer.token_to_id(letter) for letter in "xyz"]
    said = list(prompt(9))
    for token_id in reply.token_ids[:4]:
        logits = plain.logits(said)[-1]
        assert token_id == max(letters, key=lambda letter: float(logits[letter]))
        said.append(token_id)
    assert (reply.token_ids[4], reply.finish) == (2, "stop")


def test_a_grammar_in_the_batch_changes_no_other_reply(start_engine: StartEngine) -> None:
    engine = start_engine(STOP, max_concurrent=3)
    under = Sampling(seed=5, max_tokens=40, grammar=json_grammar(SCHEMAS[0]))
    requests = [
        (prompt(10 + place), under if place % 2 else Sampling(seed=place, max_tokens=30))
        for place in range(6)
    ]
    together = ask_together(engine, requests)
    alone = [ask(engine, *request) for request in requests]
    assert [reply.token_ids for reply in together] == [reply.token_ids for reply in alone]
    assert [reply.finish for reply in together] == [reply.finish for reply in alone]


def test_a_budget_that_ends_within_the_grammar_is_a_length(stopping: EmbeddedEngine) -> None:
    reply = ask(stopping, prompt(5), Sampling(max_tokens=7, grammar="start: /[a-z]{50}/"))
    assert (len(reply.token_ids), reply.finish) == (7, "length")


def test_a_reply_under_a_grammar_can_be_given_up(start_engine: StartEngine) -> None:
    engine = start_engine(STOP, max_concurrent=1, max_waiting=1)

    async def give_up_and_ask_again() -> None:
        held = [await engine.prepare_grammar(text) for text in ("start: /[a-z]{5000}/", 'start: "x"')]
        assert all(held)
        endless = engine.generate(prompt(5), Sampling(max_tokens=400, grammar="start: /[a-z]{5000}/"))
        await anext(aiter(endless))
        endless.cancel()
        after = await collect(engine.generate(prompt(5), Sampling(max_tokens=9, grammar='start: "x"')))
        assert after.finish == "stop"

    asyncio.run(give_up_and_ask_again())


def test_a_grammar_past_the_librarys_limits_ends_the_reply_as_a_length(
    stopping: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The trial looks a few tokens ahead, with the usual limits; what happens later is found out here.
    def strictly(tokenizer: LLTokenizer, text: str, limits: Mapping[str, Any]) -> LLMatcher:
        return trial.compiled(tokenizer, text, {**limits, "max_items_in_row": 3})

    monkeypatch.setattr(grammar_module, "compiled", strictly)
    ambiguous = 'start: x\nx: "a" x "b" | "a" x x "c" | "a" | x x'
    reply = ask(stopping, prompt(5), Sampling(max_tokens=50, grammar=ambiguous))
    assert reply.finish == "length"
    assert len(reply.token_ids) < 50
    assert ask(stopping, prompt(5), Sampling(max_tokens=5)).finish, "and the engine goes on"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("start: nothing", 'unknown name: "nothing"'),
        ('start: %json {"not": {}}', 'Unimplemented keys: ["not"]'),
        ("start: /(a/", "error: unclosed group"),
        ("nonsense", "Expected"),
        (r"start: /[^\s\S]/", "no reply fits it"),
        (json_grammar(WIDE), "items; max is 2000"),
        ("start: start", "no reply fits it"),
        (json_grammar({"$ref": "#"}), "no reply fits it"),
        ("start: " + "a" * LONGEST_GRAMMAR, "longer than"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(
    stopping: EmbeddedEngine, text: str, why: str
) -> None:
    for _ in range(2):  # also when it is known already
        with pytest.raises(GrammarError) as refused:
            asyncio.run(stopping.prepare_grammar(text))
        assert why in str(refused.value)
        assert "\n" not in str(refused.value)
        with pytest.raises(GrammarError):
            ask(stopping, prompt(5), Sampling(grammar=text))
    assert ask(stopping, prompt(5), Sampling(max_tokens=3)).token_ids


def test_a_grammar_that_takes_too_long_is_refused_and_others_are_compiled_meanwhile(
    stopping: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "COMPILE_SECONDS", 1.0)

    async def ask_for_both() -> None:
        asked = [stopping.prepare_grammar(hard(0)) for _ in range(3)]
        answers = await asyncio.gather(*asked, stopping.prepare_grammar('start: "x"'), return_exceptions=True)
        assert [type(answer) for answer in answers] == [GrammarError] * 3 + [Compiled]
        assert "1 s to compile" in str(answers[0])

    asyncio.run(ask_for_both())
    assert ask(stopping, prompt(5), Sampling(max_tokens=3)).token_ids


def test_hard_grammars_end_and_a_known_one_needs_no_turn(
    stopping: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "COMPILE_SECONDS", 1.0)

    async def attack() -> None:
        held = await stopping.prepare_grammar('start: "x"')
        attacks = [asyncio.create_task(stopping.prepare_grammar(hard(place))) for place in range(3)]
        waiting = asyncio.create_task(stopping.prepare_grammar('start: "y"'))
        await asyncio.sleep(0.1)
        assert await stopping.prepare_grammar('start: "x"') is held
        assert not any(task.done() for task in (*attacks, waiting))
        answers = await asyncio.gather(*attacks, return_exceptions=True)
        assert ["1 s to compile" in str(answer) for answer in answers] == [True] * 3
        assert await waiting, "and its turn came"
        with pytest.raises(GrammarError):
            await asyncio.wait_for(stopping.prepare_grammar(hard(0)), 0.1)

    asyncio.run(attack())
    assert not any(child.alive for child in stopping._grammars._trials[2:])


def test_waiting_for_others_grammars_ends_in_busy(
    stopping: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "WAIT_SECONDS", 0.3)
    monkeypatch.setattr(grammar_module, "MOST_COMPILING", 3)

    async def attack() -> None:
        attacks = [stopping.prepare_grammar(hard(place)) for place in range(2)]
        answers = await asyncio.gather(
            *attacks,
            stopping.prepare_grammar('start: "y"'),
            stopping.prepare_grammar('start: "z"'),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [EngineBusyError] * 4
        assert "3 grammars wait" in str(answers[3])

    asyncio.run(attack())


def test_a_grammar_that_is_held_is_found_after_it_was_forgotten(stopping: EmbeddedEngine) -> None:
    text = 'start: "held"'

    async def hold_and_ask() -> None:
        held = await stopping.prepare_grammar(text)
        for place in range(KEPT_GRAMMARS):
            await stopping.prepare_grammar(f'start: "{place}"')
        assert text not in stopping._grammars._kept
        assert (await collect(stopping.generate(prompt(5), Sampling(max_tokens=40, grammar=text)))).finish
        del held
        with pytest.raises(GrammarError, match="not prepared"):
            stopping.generate(prompt(5), Sampling(grammar=text))

    asyncio.run(hold_and_ask())


def test_a_grammar_that_crashes_the_library_ends_its_trial_alone(stopping: EmbeddedEngine) -> None:
    asyncio.run(stopping.prepare_grammar('start: "x"'))
    for child in stopping._grammars._trials:
        child._child.kill()
        child._child.wait()
    assert asyncio.run(stopping.prepare_grammar('start: "y"'))


def test_compiled_grammars_are_kept_and_the_least_used_go(model_folder: Path) -> None:
    grammars = Grammars(model_folder / "tokenizer.json", 300, STOP)
    texts = [f'start: "{place}"' for place in range(KEPT_GRAMMARS + 5)]
    for text in texts:
        grammars.prepare(text).result()
        grammars.prepare(texts[0]).result()
    assert len(grammars._kept) == KEPT_GRAMMARS
    assert texts[0] in grammars._kept
    assert texts[1] not in grammars._kept
    grammars.close()


def test_nobody_waits_for_a_grammar_of_a_closed_engine(model_folder: Path) -> None:
    grammars = Grammars(model_folder / "tokenizer.json", 300, STOP)
    asked = [grammars.prepare(f'start: "{place}"') for place in range(2 * COMPILED_AT_ONCE)]
    grammars.close()
    for future in asked:
        error = future.exception(timeout=1)
        assert error is None or "closing" in str(error)
    assert asked[-1].exception() is not None
    with pytest.raises(EngineError, match="closing"):
        grammars.prepare('start: "y"')


def test_alternatives_are_the_models_likeliest_tokens(stopping: EmbeddedEngine, plain: PlainModel) -> None:
    sampling = Sampling(temperature=0.7, seed=2, max_tokens=12, top_logprobs=3, grammar="start: /[a-z]{4,9}/")
    free = replace(sampling, grammar="")
    for asked in (sampling, free):
        reply = ask(stopping, prompt(14), asked)
        assert [len(each) for each in reply.alternatives] == [3] * len(reply.token_ids)
        logits = plain.logits([*prompt(14), *reply.token_ids])[len(prompt(14)) - 1 : -1]
        likeliest = torch.log_softmax(logits / 0.7, dim=-1).topk(3)
        told = [[logprob for _, logprob in each] for each in reply.alternatives]
        assert torch.allclose(torch.tensor(told), likeliest.values, atol=1e-4)
    without = ask(stopping, prompt(14), replace(free, top_logprobs=0))
    assert without.token_ids == reply.token_ids
    assert not any(without.alternatives)


@pytest.mark.slow
def test_on_the_embedded_models_tokenizer_every_reply_is_valid() -> None:
    """Its tokenizer was read out of a GGUF file; llguidance must take it for the same bytes."""
    tokenizer_file = resolve(EMBEDDED_MODEL, print) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    size = tokenizer.get_vocab_size()
    grammars = Grammars(tokenizer_file, size, {0, 2})
    for token_id in range(size):
        text = tokenizer.decode([token_id], skip_special_tokens=False)
        assert "\ufffd" in text or grammars._tokenizer.decode_str([token_id]) == text
    chooser = random.Random(0)
    for schema in SCHEMAS * 5:
        held = grammars.prepare(json_grammar(schema)).result()
        constraint = grammars.constraint(json_grammar(schema))
        assert held
        token_ids: list[int] = []
        while (token_id := chooser.choice(constraint.allowed().nonzero().flatten().tolist())) not in (0, 2):
            constraint.advance(token_id)
            token_ids.append(token_id)
        Draft202012Validator(schema).validate(json.loads(tokenizer.decode(token_ids)))
    grammars.close()
