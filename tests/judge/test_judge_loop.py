"""Loop 3 over a real store: judged, unjudged, given, and a judge that is down for a while."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from judging_nouns import make_turn, user

from openclaw_rl.judge import run
from openclaw_rl.judge.rules_judge import RulesJudge
from openclaw_rl.judge.verdict import unanswered, unread
from openclaw_rl.model import TurnState, Vote
from openclaw_rl.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.sqlite")
    opened.conversations.open_session("session", "tenant")
    yield opened
    opened.close()


class ScriptedJudge:
    """Does what the request's text says: "good", "dead", "unread", "raise"; `down` makes all dead."""

    name = "scripted"

    def __init__(self, down: bool = False, delay: float = 0.0) -> None:
        self.down = down
        self.delay = delay
        self.asked: list[str] = []
        self.running = self.most_running = 0

    async def judge(self, turn, next_state):
        self.asked.append(turn.id)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay)
        self.running -= 1
        does = turn.messages[-1]["content"]
        if self.down or does == "dead":
            return (unanswered("evaluative", "HTTP 503"), unanswered("directive", "HTTP 503"))
        if does == "unread":
            return (unread("evaluative", "hm", "no boxed answer"), Vote("directive", -1))
        if does == "raise":
            raise ValueError("the secret words of a user")
        return (Vote("evaluative", 1), Vote("directive", -1))

    async def close(self) -> None: ...


def add(store: Store, turn_id: str, does: str, said: str | None = "ok", given=None, at: float = 1.0) -> None:
    store.conversations.add_turn(make_turn(does, turn_id=turn_id, finished_at=at))
    messages = [] if said is None else [user(said)]
    store.conversations.add_next_state(turn_id, "conversation", messages, given)


def state(store: Store, turn_id: str) -> TurnState:
    return store.conversations.turn(turn_id).state


def run_until(store: Store, judge, *steps, **options) -> None:
    """Run the loop; each step is a condition to wait for, or something to do once the last one held."""

    async def running():
        stop = asyncio.Event()
        loop = asyncio.create_task(run(store, judge, stop, interval=0.01, **options))
        deadline = time.monotonic() + 15
        for step in steps:
            while step() is False:
                assert not loop.done(), loop.exception()
                assert time.monotonic() < deadline, store.reports()
                await asyncio.sleep(0.005)
        stop.set()
        await loop

    asyncio.run(running())


def phase(store: Store) -> str:
    reports = store.reports()
    return reports["judge"].phase if "judge" in reports else ""


def idle(store: Store):
    return lambda: phase(store) == "waiting"


def test_turns_are_judged_and_the_store_knows_how_many(store):
    add(store, "a", "Explain rain.", "too long, one sentence please", at=1)
    add(store, "b", "Explain rain.", "hmm", at=2)
    run_until(store, RulesJudge(), idle(store))
    sample = store.learning.sample("a")
    assert (sample.reward, sample.hint) == (-1.0, "too long, one sentence please")
    assert state(store, "a") is TurnState.WAITING_UPDATE
    assert state(store, "b") is TurnState.NO_SIGNAL
    report = store.reports()["judge"]
    assert report.phase == "stopped"
    assert report.detail == {
        "judge": "rules",
        "judged": 2,
        "unjudged": 0,
        "hints": 1,
        "votes_unread": 0,
        "votes_unanswered": 0,
    }


def test_a_vote_that_cannot_be_read_leaves_the_turn_unjudged_with_its_votes(store):
    add(store, "a", "unread")
    run_until(store, ScriptedJudge(), idle(store))
    (judgement,) = store.learning.judgements("a")
    assert judgement.score is None
    assert [vote.raw for vote in judgement.votes] == ["hm", ""]
    assert state(store, "a") is TurnState.UNJUDGED
    assert store.reports()["judge"].detail["votes_unread"] == 1


def test_given_scores_are_used_even_while_the_judge_is_down(store):
    add(store, "a", "good", said=None, given=-1)
    run_until(store, ScriptedJudge(down=True), idle(store))
    (judgement,) = store.learning.judgements("a")
    assert (judgement.score, judgement.judge) == (-1, "scripted+given")
    assert state(store, "a") is TurnState.WAITING_UPDATE


def test_while_the_judge_is_down_turns_wait_and_are_judged_when_it_is_back(store):
    for number in range(6):
        add(store, f"t{number}", "good", at=number)
    judge = ScriptedJudge(down=True)

    def still_waiting():
        assert store.reports()["judge"].detail["reason"] == "HTTP 503"
        assert store.conversations.count_turns() == {TurnState.WAITING_JUDGE: 6}
        assert len(judge.asked) < 30, "it backs off"
        judge.down = False

    run_until(
        store,
        judge,
        lambda: phase(store) == "failing" and len(judge.asked) >= 8,
        still_waiting,
        idle(store),
        concurrency=3,
    )
    assert store.conversations.count_turns() == {TurnState.WAITING_UPDATE: 6}
    assert all(len(store.learning.judgements(f"t{number}")) == 1 for number in range(6))
    assert "reason" not in store.reports()["judge"].detail


def test_turns_that_the_judge_never_answers_do_not_block_those_behind_and_are_given_up(store):
    for number in range(2):
        add(store, f"dead{number}", "dead", at=number)
    add(store, "good", "good", at=9)
    run_until(store, ScriptedJudge(), idle(store), concurrency=2)
    assert state(store, "good") is TurnState.WAITING_UPDATE
    for number in range(2):
        assert state(store, f"dead{number}") is TurnState.UNJUDGED
        (judgement,) = store.learning.judgements(f"dead{number}")
        assert {vote.error for vote in judgement.votes} == {"no answer: HTTP 503"}


def test_a_judge_that_raises_leaves_one_turn_unjudged_and_no_words_in_the_log(store, caplog):
    add(store, "a", "raise", at=1)
    add(store, "b", "good", at=2)
    with caplog.at_level(logging.DEBUG, logger="openclaw_rl"):
        run_until(store, ScriptedJudge(), idle(store))
    assert state(store, "a") is TurnState.UNJUDGED
    assert state(store, "b") is TurnState.WAITING_UPDATE
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_several_turns_are_judged_at_once_and_no_more_than_asked(store):
    for number in range(7):
        add(store, f"t{number}", "good", at=number)
    judge = ScriptedJudge(delay=0.02)
    run_until(store, judge, idle(store), concurrency=3)
    assert judge.most_running == 3
    assert sorted(judge.asked) == [f"t{number}" for number in range(7)]


def test_a_judgement_is_written_before_slower_ones_of_its_round_are_done(store):
    add(store, "slow", "good", at=1)
    add(store, "quick", "good", said=None, given=1, at=2)
    judge = ScriptedJudge(delay=30)
    run_until(store, judge, lambda: state(store, "quick") is TurnState.WAITING_UPDATE)
    assert state(store, "slow") is TurnState.WAITING_JUDGE, "stopped while it was being judged"


def test_turns_that_come_later_are_judged_too(store):
    run_until(
        store,
        ScriptedJudge(),
        idle(store),
        lambda: add(store, "late", "good"),
        lambda: state(store, "late") is TurnState.WAITING_UPDATE,
    )


def test_a_store_that_fails_ends_the_loop_with_its_error(store, monkeypatch):
    def broken(limit):
        raise OSError("disk")

    monkeypatch.setattr(store.learning, "turns_to_judge", broken)
    with pytest.raises(OSError, match="disk"):
        asyncio.run(run(store, ScriptedJudge(), asyncio.Event()))
