"""Which judge the settings choose, and how given scores are used."""

from __future__ import annotations

import asyncio

import pytest
from judging_nouns import make_next_state, make_turn
from test_model_judge import GOOD, running_server

from openclaw_rl.config import Settings
from openclaw_rl.judge import judge_turn, make_judge
from openclaw_rl.model import Vote


class CountingJudge:
    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    async def judge(self, turn, next_state):
        self.asked += 1
        return (Vote("evaluative", -1), Vote("directive", 1, hint="use metric units"))

    async def close(self) -> None: ...


def test_rules_are_the_default():
    judge = make_judge(Settings(), "http://127.0.0.1:1")
    assert judge.name == "rules"
    asyncio.run(judge.close())


def ask(judge):
    async def asked():
        try:
            return await judge_turn(judge, make_turn(), make_next_state("hm"))
        finally:
            await judge.close()

    return asyncio.run(asked())


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_self_asks_our_own_server_s_base_weights_as_side_turns(suffix):
    with running_server() as server:
        settings = Settings(
            model={"name": "org/tiny"},
            judge={"kind": "self", "votes": 1},
            server={"api_keys": ["one", "two"]},
        )
        judgement = ask(make_judge(settings, server.url.removesuffix("/v1") + suffix))
    assert (judgement.score, judgement.judge) == (1, "model:tiny@0")
    for body, headers in server.requests:
        assert body["model"] == "tiny@0"
        assert headers["x-turn-type"] == "side"
        assert headers["authorization"] == "Bearer one"


def test_self_without_keys_sends_none():
    with running_server() as server:
        ask(make_judge(Settings(judge={"kind": "self", "votes": 1}), server.url))
    assert all("authorization" not in headers for _, headers in server.requests)


def test_a_url_is_asked_with_its_own_key_and_model():
    with running_server() as server:
        kind = {"kind": server.url, "model": "big", "api_key": "sk-judge", "votes": 1}
        judgement = ask(make_judge(Settings(judge=kind), "http://127.0.0.1:1"))
    assert judgement.votes[0].raw == GOOD
    body, headers = server.requests[0]
    assert (body["model"], headers["authorization"]) == ("big", "Bearer sk-judge")
    assert "x-turn-type" not in headers


def test_a_given_score_stands_and_the_judge_still_gives_the_hint():
    judge = CountingJudge()
    judgement = asyncio.run(judge_turn(judge, make_turn(), make_next_state("in metres", "feedback", 1)))
    assert (judgement.score, judgement.hint, judgement.judge) == (1, "use metric units", "counting+given")
    assert judge.asked == 1


@pytest.mark.parametrize("said", [(), " \n"])
def test_a_given_score_without_words_asks_no_judge(said):
    judge = CountingJudge()
    judgement = asyncio.run(judge_turn(judge, make_turn(), make_next_state(said, "feedback", -1)))
    assert (judgement.score, judgement.hint, judgement.votes) == (-1, None, ())
    assert judge.asked == 0
