"""What the learner relies on: samples in order, updates all or nothing, and one serving version."""

from __future__ import annotations

import pytest
from ground_nouns import add_sample, add_turn, an_update, follow, judge, state_of

from openclaw_rl.model import Message, Sample, Sampling, Score, TurnState, VersionState
from openclaw_rl.store import ConflictError, Store


def test_samples_wait_oldest_first_and_carry_what_they_are_made_of(store: Store) -> None:
    newer = add_sample(store, finished_at=20.0)
    older = add_turn(store, finished_at=10.0)
    next_state_id = follow(store, older, "Shorter!")
    judge(store, older, next_state_id, 0, "Be shorter.")
    samples = store.learning.waiting_samples(10)
    assert [sample.turn.id for sample in samples] == [older.id, newer.id]
    assert (samples[0].reward, samples[0].hint) == (0.0, "Be shorter.")
    assert samples[0].next_state.messages == ({"role": "user", "content": "Shorter!"},)
    assert samples[0].judgement.votes[1].hint == "Be shorter."
    assert [sample.turn.id for sample in store.learning.waiting_samples(1)] == [older.id]


def test_a_sample_knows_the_hint_that_its_tenant_gave_last_before_it(store: Store) -> None:
    def given(session_id: str, tenant: str, hint: str | None) -> str | None:
        turn = add_turn(store, session_id, tenant)
        judge(store, turn, follow(store, turn), -1, hint)
        sample = store.learning.sample(turn.id)
        assert sample is not None
        return store.learning.earlier_hint(sample)

    assert given("s1", "me", "Be shorter.") is None  # its own hint is no earlier one
    assert given("s2", "another", None) is None
    assert given("s3", "me", None) == "Be shorter."
    assert given("s3", "me", "Use plain words.") == "Be shorter."
    assert given("s1", "me", None) == "Use plain words."


def test_what_went_wrong_in_a_tool_is_nobodys_standing_wish(store: Store) -> None:
    def sample(next_messages: list[Message], hint: str | None) -> Sample:
        turn = add_turn(store, "s1", "me")
        next_state = store.conversations.add_next_state(turn.id, "conversation", next_messages)
        judge(store, turn, next_state.id, -1, hint)
        found = store.learning.sample(turn.id)
        assert found is not None
        return found

    words: list[Message] = [{"role": "user", "content": "No."}]
    result: list[Message] = [{"role": "tool", "content": "exit 1"}, *words]
    sample(words, "Be shorter.")
    sample(result, "List the folder first.")
    assert store.learning.earlier_hint(sample(words, None)) == "Be shorter."
    assert store.learning.earlier_hint(sample(result, None)) is None


def test_turns_wait_for_the_judge_longest_waiting_first(store: Store) -> None:
    newer, older = add_turn(store, finished_at=20.0), add_turn(store, finished_at=10.0)
    follow(store, newer)
    follow(store, older)
    assert [turn.id for turn, _ in store.learning.turns_to_judge(10)] == [older.id, newer.id]
    assert [turn.id for turn, _ in store.learning.turns_to_judge(1)] == [older.id]


def test_a_sample_can_be_looked_up_by_its_turn_once_it_was_judged(store: Store) -> None:
    turn = add_turn(store)
    assert store.learning.sample("turn_x") is None
    assert store.learning.sample(turn.id) is None
    judge(store, turn, follow(store, turn), 1)
    sample = store.learning.sample(turn.id)
    assert sample is not None
    assert (sample.turn.id, sample.reward) == (turn.id, 1.0)


@pytest.mark.parametrize(("score", "hint"), [(1, None), (0, "Look first.")])
def test_a_turn_under_a_grammar_is_judged_and_never_waits_for_an_update(
    store: Store, score: Score, hint: str | None
) -> None:
    turn = add_turn(store, sampling=Sampling(grammar='start: "x"'))
    assert judge(store, turn, follow(store, turn), score, hint) is TurnState.SET_ASIDE
    ((_, reason, _),) = store.conversations.reasons()
    assert "sampled under a grammar" in reason
    assert store.learning.waiting_samples(10) == []
    assert len(store.learning.judgements(turn.id)) == 1
    free = add_sample(store)
    assert [sample.turn.id for sample in store.learning.waiting_samples(10)] == [free.id]


def test_a_turn_under_a_grammar_that_nobody_could_judge_says_that(store: Store) -> None:
    turn = add_turn(store, sampling=Sampling(grammar='start: "x"'))
    assert judge(store, turn, follow(store, turn), None) is TurnState.UNJUDGED


def test_a_sample_set_aside_leaves_the_queue_with_its_reason(store: Store) -> None:
    turn = add_sample(store)
    store.learning.set_aside(turn.id, "too long")
    assert store.learning.waiting_samples(10) == []
    kept = store.conversations.turn(turn.id)
    assert kept is not None
    assert (kept.state, kept.state_reason) == (TurnState.SET_ASIDE, "too long")


def test_an_update_marks_its_turns_and_brings_its_version(store: Store) -> None:
    first, second, other = add_sample(store), add_sample(store), add_sample(store)
    done, version = an_update(1, first, second)
    store.learning.record_update(done, version)
    assert store.learning.update(1) == done
    assert store.learning.last_update() == done
    assert store.learning.version(1) == version
    trained = store.conversations.turn(first.id)
    assert trained is not None
    assert (trained.state, trained.update_id) == (TurnState.TRAINED, 1)
    assert [sample.turn.id for sample in store.learning.waiting_samples(10)] == [other.id]


def test_an_update_with_one_sample_that_was_trained_already_records_nothing(store: Store) -> None:
    trained, waiting = add_sample(store), add_sample(store)
    done, version = an_update(1, trained)
    store.learning.record_update(done, version)
    with pytest.raises(ConflictError, match="1 of 2"):
        store.learning.record_update(*an_update(2, trained, waiting))
    assert state_of(store, waiting) is TurnState.WAITING_UPDATE
    assert store.learning.update(2) is None
    assert store.learning.version(2) is None
    assert store.learning.last_update() == done


def test_a_sample_that_went_back_to_the_judge_is_a_conflict(store: Store) -> None:
    turn = add_sample(store)
    follow(store, turn, "wait, there is more")
    with pytest.raises(ConflictError):
        store.learning.record_update(*an_update(1, turn))
    assert state_of(store, turn) is TurnState.WAITING_JUDGE
    assert store.learning.last_update() is None


def test_a_sample_that_was_judged_anew_while_its_update_ran_is_a_conflict(store: Store) -> None:
    turn = add_sample(store)
    done, version = an_update(1, turn)
    judge(store, turn, follow(store, turn, "Wrong after all."), -1)
    assert state_of(store, turn) is TurnState.WAITING_UPDATE
    with pytest.raises(ConflictError, match="judged anew"):
        store.learning.record_update(done, version)
    assert store.learning.last_update() is None
    store.learning.record_update(*an_update(1, turn))


def test_a_sample_named_twice_in_one_update_is_a_conflict(store: Store) -> None:
    turn = add_sample(store)
    with pytest.raises(ConflictError):
        store.learning.record_update(*an_update(1, turn, turn))
    assert state_of(store, turn) is TurnState.WAITING_UPDATE


def test_two_learners_that_took_the_same_number_get_one_update_and_one_conflict(store: Store) -> None:
    mine, theirs = add_sample(store), add_sample(store)
    done, version = an_update(1, theirs)
    store.learning.record_update(done, version)
    with pytest.raises(ConflictError):
        store.learning.record_update(*an_update(1, mine))
    assert store.learning.update(1) == done
    assert state_of(store, mine) is TurnState.WAITING_UPDATE


def test_numbers_go_up_from_the_last_that_was_recorded(store: Store) -> None:
    assert store.learning.next_numbers() == (1, 1)
    store.learning.record_update(*an_update(1, add_sample(store)))
    assert store.learning.next_numbers() == (2, 2)
    assert store.learning.last_update() is not None


def test_an_empty_store_serves_the_base_version_and_knows_no_update(store: Store) -> None:
    base = store.learning.version(0)
    assert base is not None
    assert (base.state, base.path, base.parent) == (VersionState.SERVING, None, None)
    assert store.learning.serving_version() == base
    assert store.learning.newest_good_version() == base
    assert store.learning.ensure_base_version() == base
    assert store.learning.last_update() is None
    assert store.learning.update(1) is None


def states(store: Store) -> dict[int, VersionState]:
    return {version.number: version.state for version in store.learning.versions()}


def test_one_version_serves_and_the_one_before_retires(store: Store) -> None:
    store.learning.record_update(*an_update(1, add_sample(store)))
    assert states(store) == {1: VersionState.CANDIDATE, 0: VersionState.SERVING}
    store.learning.mark_serving(1)
    assert states(store) == {1: VersionState.SERVING, 0: VersionState.RETIRED}
    assert list(states(store)) == [1, 0]
    serving = store.learning.serving_version()
    assert serving is not None
    assert serving.number == 1


def test_a_version_that_was_rejected_meanwhile_does_not_come_back_to_life(store: Store) -> None:
    store.learning.record_update(*an_update(1, add_sample(store)))
    store.learning.mark_rejected(1, "rolled back")
    assert store.learning.mark_serving(1) is False
    assert states(store) == {1: VersionState.REJECTED, 0: VersionState.SERVING}
    assert store.learning.mark_serving(0) is True


def test_a_rejected_version_keeps_its_reason_and_is_no_good_version(store: Store) -> None:
    store.learning.record_update(*an_update(1, add_sample(store)))
    store.learning.record_update(*an_update(2, add_sample(store)))
    store.learning.mark_rejected(2, "log-probs are not finite")
    rejected = store.learning.version(2)
    assert rejected is not None
    assert (rejected.state, rejected.state_reason) == (VersionState.REJECTED, "log-probs are not finite")
    assert store.learning.newest_good_version().number == 1
    assert states(store)[0] is VersionState.SERVING


def test_a_process_report_replaces_the_one_before(store: Store) -> None:
    store.report("learner", "starting")
    store.report("learner", "training", step=3)
    store.report("server", "serving")
    reports = store.reports()
    assert reports.keys() == {"learner", "server"}
    assert (reports["learner"].phase, reports["learner"].detail) == ("training", {"step": 3})


def test_a_store_that_can_be_reached_answers_a_ping(store: Store) -> None:
    store.ping()
