"""Drawing: the distribution that comes out, what top-k and top-p leave out, and what the log-prob means."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from openclaw_rl.model import Sampling
from openclaw_rl.policy.embedded.sampler import Dice, Drawn, chosen_log_probs, draw

TEN = torch.randn(10, generator=torch.Generator().manual_seed(3)) * 1.5


class Loaded(Dice):
    """Dice that always fall the same way."""

    def __init__(self, roll: float) -> None:
        super().__init__(0)
        self._roll = roll

    def roll(self) -> float:
        return self._roll


def frequencies(logits: torch.Tensor, sampling: Sampling, count: int = 20_000) -> torch.Tensor:
    """How often each token was drawn, by one request's dice."""
    dice = Dice(sampling.seed)
    drawn = draw(logits.expand(count, -1).clone(), [sampling] * count, [dice] * count)
    return torch.bincount(torch.tensor(token_ids(drawn)), minlength=len(logits))


def token_ids(drawn: list[Drawn]) -> list[int]:
    return [one.token_id for one in drawn]


def chi_square(observed: torch.Tensor, probabilities: torch.Tensor) -> float:
    expected = probabilities * observed.sum()
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_tokens_are_drawn_as_often_as_softmax_says(temperature: float) -> None:
    observed = frequencies(TEN, Sampling(temperature=temperature, seed=11))
    # 9 degrees of freedom: beyond 27.9 once in a thousand seeds.
    assert chi_square(observed, (TEN / temperature).softmax(-1)) < 27.9
    # The test can fail: another temperature is told apart.
    assert chi_square(observed, (TEN / (1.2 * temperature)).softmax(-1)) > 27.9


def test_top_k_draws_from_the_likeliest_in_proportion() -> None:
    observed = frequencies(TEN, Sampling(top_k=3, seed=12))
    kept = TEN.topk(3).indices
    assert observed.sum() == observed[kept].sum()
    assert chi_square(observed[kept], TEN[kept].softmax(-1)) < 13.8


def test_top_k_of_one_is_greedy() -> None:
    rows = torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    samplings = [Sampling(temperature=1.5, top_k=1)] * 50
    drawn = draw(rows, samplings, [Dice(row) for row in range(50)])
    assert token_ids(drawn) == rows.argmax(-1).tolist()
    assert token_ids(drawn) == token_ids(draw(rows, [Sampling(temperature=0)] * 50, [Dice(0)] * 50))


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    probabilities = torch.tensor([0.05, 0.4, 0.1, 0.3, 0.15])
    drawn = {
        p: frequencies(probabilities.log(), Sampling(top_p=p, seed=2), 3000) > 0 for p in (0.3, 0.6, 0.8)
    }
    assert drawn[0.3].tolist() == [False, True, False, False, False]
    assert drawn[0.6].tolist() == [False, True, False, True, False]
    assert drawn[0.8].tolist() == [False, True, False, True, True]


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.1])
    # Of the two that are left, the first has 4/7.
    observed = frequencies(probabilities.log(), Sampling(top_k=2, top_p=0.5, seed=2), 2000)
    assert observed.tolist() == [2000, 0, 0, 0]


@pytest.mark.parametrize("restriction", [{"top_p": 0.5}, {"top_k": 2}, {"top_k": 4, "top_p": 0.9}])
def test_the_log_prob_is_that_of_the_full_vocabulary(restriction: dict[str, Any]) -> None:
    sampling = Sampling(temperature=0.7, seed=4, **restriction)
    (drawn,) = draw(TEN.unsqueeze(0), [sampling], [Dice(4)])
    assert drawn.logprob == pytest.approx((TEN / 0.7).log_softmax(-1)[drawn.token_id].item(), abs=1e-6)


def test_a_greedy_log_prob_is_at_temperature_one() -> None:
    (drawn,) = draw(TEN.unsqueeze(0), [Sampling(temperature=0)], [Dice(0)])
    assert drawn.logprob == pytest.approx(TEN.log_softmax(-1)[drawn.token_id].item(), abs=1e-6)


def test_the_learner_computes_the_same_log_probs() -> None:
    rows = torch.randn(20, 50, generator=torch.Generator().manual_seed(5)).bfloat16()
    temperatures = [0.0, 0.3, 1.0, 1.8] * 5
    samplings = [Sampling(temperature=temperature) for temperature in temperatures]
    drawn = draw(rows, samplings, [Dice(row) for row in range(20)])
    again = chosen_log_probs(rows, torch.tensor(token_ids(drawn)).unsqueeze(1), torch.tensor(temperatures))
    assert again.squeeze(1).tolist() == pytest.approx([one.logprob for one in drawn], abs=1e-6)


@pytest.mark.parametrize("roll", [0.0, 0.5, 1 - 2**-53, 1 - 2**-24])
@pytest.mark.parametrize("restriction", [{}, {"top_p": 0.99}, {"top_k": 3}])
def test_no_roll_ever_falls_on_a_token_without_probability(roll: float, restriction: dict[str, Any]) -> None:
    # Impossible tokens lie before, between and after the possible ones.
    logits = torch.full((1, 1000), float("-inf"))
    logits[0, 100:900:7] = torch.randn(115, generator=torch.Generator().manual_seed(6))
    sampling = Sampling(**restriction)
    (drawn,) = draw(logits, [sampling], [Loaded(roll)])
    assert logits[0, drawn.token_id] > float("-inf")
    assert drawn.logprob > float("-inf")


def test_rows_of_one_call_are_drawn_each_by_its_own_rules() -> None:
    rows = TEN.expand(3, -1).clone()
    samplings = [Sampling(temperature=0), Sampling(top_k=1), Sampling(seed=8)]
    drawn = draw(rows, samplings, [Dice(1), Dice(2), Dice(8)])
    alone = draw(TEN.unsqueeze(0), [samplings[2]], [Dice(8)])
    assert token_ids(drawn) == [int(TEN.argmax()), int(TEN.argmax()), *token_ids(alone)]


def mask_of(*allowed: int) -> torch.Tensor:
    mask = torch.zeros(10, dtype=torch.bool)
    mask[list(allowed)] = True
    return mask


def test_a_masked_row_is_drawn_from_what_its_grammar_leaves_in_proportion() -> None:
    dice = Dice(5)
    count = 20_000
    masks = dict.fromkeys(range(count), mask_of(2, 5, 7))
    drawn = draw(TEN.expand(count, -1).clone(), [Sampling(temperature=0.8)] * count, [dice] * count, masks)
    observed = torch.bincount(torch.tensor(token_ids(drawn)), minlength=10)
    assert observed.sum() == observed[[2, 5, 7]].sum()
    assert chi_square(observed[[2, 5, 7]], (TEN[[2, 5, 7]] / 0.8).softmax(-1)) < 13.8


@pytest.mark.parametrize("restriction", [{}, {"top_k": 1}, {"top_p": 0.01}, {"temperature": 0.0}])
def test_a_grammar_that_leaves_only_unlikely_tokens_is_kept(restriction: dict[str, Any]) -> None:
    # At -500 their probabilities are 0 in float32.
    logits = torch.zeros(1, 10)
    logits[0, 3], logits[0, 6] = -500, -501
    (drawn,) = draw(logits, [Sampling(**restriction)], [Loaded(0.0)], {0: mask_of(3, 6)})
    assert drawn.token_id == 3
    assert drawn.logprob == pytest.approx(logits[0].log_softmax(-1)[3].item(), rel=1e-6)


def test_a_mask_changes_no_other_row_and_no_log_prob() -> None:
    rows = TEN.expand(3, -1).clone()
    samplings = [Sampling(seed=seed) for seed in (1, 2, 3)]
    free = draw(rows, samplings, [Dice(seed) for seed in (1, 2, 3)])
    mixed = draw(rows, samplings, [Dice(seed) for seed in (1, 2, 3)], {1: mask_of(9)})
    assert [mixed[0], mixed[2]] == [free[0], free[2]]
    assert mixed[1].token_id == 9
    assert mixed[1].logprob == pytest.approx(TEN.log_softmax(-1)[9].item(), abs=1e-6)


def test_alternatives_are_the_likeliest_of_the_full_vocabulary_and_only_told_when_asked_for() -> None:
    rows = TEN.expand(2, -1).clone()
    samplings = [Sampling(temperature=0.5, top_k=1, top_logprobs=3), Sampling(seed=1)]
    drawn = draw(rows, samplings, [Dice(0), Dice(1)], {0: mask_of(int(TEN.argmin()))})
    expected = (TEN / 0.5).log_softmax(-1).topk(3)
    assert [token for token, _ in drawn[0].alternatives] == expected.indices.tolist()
    told = [logprob for _, logprob in drawn[0].alternatives]
    assert told == pytest.approx(expected.values.tolist(), abs=1e-6)
    assert drawn[0].token_id == int(TEN.argmin())
    assert drawn[1].alternatives == ()
