"""The bench of swaps: that its check passes a reply of one version, and fails what is none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from openclaw_rl.config import LearnSettings
from openclaw_rl.evals.random_versions import RandomVersions, record
from openclaw_rl.evals.serve_bench.http_streams import Streamed
from openclaw_rl.evals.swap_bench.bench import recorded_turn, summary, wrong
from openclaw_rl.evals.swap_bench.traffic import Seen
from openclaw_rl.evals.swap_bench.verify import OTHERS_EVERY, TOLERANCES, Verified, verify
from openclaw_rl.learn.batch import Scored
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.model import Sampling, Turn, TurnKind, TurnState, VersionState
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.store import Store

SETTINGS = LearnSettings(lora_rank=4, lora_alpha=8)
TOLERANCE = TOLERANCES[torch.float32]
PROMPT = (5, 6, 7, 8)
REPLY = tuple(random.Random(3).randrange(3, 300) for _ in range(12))


@pytest.fixture(scope="module")
def network(model_folder: Path) -> Network:
    return Network.load(
        model_folder,
        dtype=torch.float32,
        device=torch.device("cpu"),
        adapter_targets=SETTINGS.lora_targets,
    )


@pytest.fixture(scope="module")
def versions(model_folder: Path) -> RandomVersions:
    return RandomVersions(model_folder, SETTINGS)


def of_version(network: Network, versions: RandomVersions, version: int) -> tuple[float, ...]:
    """What an engine would have recorded."""
    adapter = versions.adapter(version) if version else None
    scorer = Scorer(network, adapter, network, 512, lambda: None)
    return tuple(scorer.log_probs([Scored(0, PROMPT, REPLY, 0.7)])[0].tolist())


def turn(claims: int, logprobs: tuple[float, ...]) -> Turn:
    return Turn(
        id=f"turn_{claims}",
        session_id="s",
        kind=TurnKind.MAIN,
        state=TurnState.WAITING_NEXT_STATE,
        model="bench",
        policy_version=claims,
        messages=({"role": "user", "content": "?"},),
        reply={"role": "assistant", "content": ""},
        prompt_ids=PROMPT,
        response_ids=REPLY,
        logprobs=logprobs,
        sampling=Sampling(temperature=0.7),
        finish_reason="length",
        created_at=0.0,
        finished_at=1.0,
        conversation_hash=str(claims),
    )


def test_a_reply_of_its_version_passes_and_is_no_other_s(network: Network, versions: RandomVersions) -> None:
    turns = [turn(number, of_version(network, versions, number)) for number in range(2 * OTHERS_EVERY)]
    found = verify(network, turns, versions.adapter, newest=2 * OTHERS_EVERY - 1)
    assert all(one.own < TOLERANCE / 10 for one in found)
    others = [one.other for one in found if one.other is not None]
    assert len(others) == 2
    assert min(others) > 10 * TOLERANCE


def test_a_reply_that_names_another_version_or_is_of_two_fails(
    network: Network, versions: RandomVersions
) -> None:
    first, second = (of_version(network, versions, number) for number in (1, 2))
    [claimed] = verify(network, [turn(2, first)], versions.adapter, newest=3)
    assert claimed.own > TOLERANCE
    [mixed] = verify(network, [turn(1, first[:6] + second[6:])], versions.adapter, newest=3)
    assert mixed.own > TOLERANCE


def test_a_version_is_the_same_adapter_wherever_it_is_made(
    network: Network, versions: RandomVersions, model_folder: Path, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    for number in (1, 2):
        version = record(store, versions.write(number, tmp_path / "versions", "bench"))
        assert version.number == number
        loaded = Adapter.load(tmp_path / str(version.path), network.adapted)
        again = RandomVersions(model_folder, SETTINGS).adapter(number)
        assert loaded.scale == again.scale
        for name, factors in again.factors.items():
            assert all(map(torch.equal, factors, loaded.factors[name]))
    newest = store.learning.newest_good_version()
    assert (newest.number, newest.state) == (2, VersionState.CANDIDATE)
    store.close()


def test_a_reply_is_recorded_under_the_version_that_the_client_was_told(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    made = turn(0, tuple(-1.0 for _ in REPLY))
    store.conversations.open_session(made.session_id, "me")
    store.conversations.add_turn(made)
    told = {"x-turn-id": made.id, "x-policy-version": "0"}
    assert recorded_turn(store, told) == made
    assert recorded_turn(store, {**told, "x-policy-version": "1"}) is None
    assert recorded_turn(store, {**told, "x-turn-id": "another"}) is None
    store.close()


def test_what_is_wrong_is_counted() -> None:
    seen = Seen(
        chats=3,
        errors=["refused"],
        replies=[Streamed(arrivals=[1.0, 2.5, 3.0]), Streamed(arrivals=[4.0, 4.5])],
        served_at=[2.0, 3.5],
    )
    found = [Verified("a", 1e-5, 0.4), Verified("b", 0.02, None), Verified("c", 1e-5, 1e-4)]
    said = summary(seen, found, 1e-3, not_recorded=2)
    assert said["chats"] == 3
    assert said["swaps"] == 2
    assert said["errors"] == 1
    assert said["mixed_versions"] == 1
    assert (said["under_other_versions"], said["indistinguishable"]) == (2, 1)
    assert wrong(said) == [
        "chats that ended in an error: 1",
        "replies that the store has not, or under another version than the client was told: 2",
        "replies that are not of the version that they name: 1",
        "replies that the version before or after would have given as well: 1",
    ]
    assert wrong(summary(Seen(chats=3), found[:1], 1e-3, not_recorded=0)) == []
    assert wrong(summary(Seen(chats=3), [], 1e-3, not_recorded=0)) == [
        "no reply was there to be computed again"
    ]
    assert said["longest_gap_s"] == 1.5
    assert said["across_a_swap"] == 1
