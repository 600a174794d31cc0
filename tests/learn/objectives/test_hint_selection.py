"""Overlap and the choice of a hint against the definitions, with the ties that a maximum may hide."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_formulas import chosen_hints, shared_tokens

from openclaw_rl.learn.objectives.hint_selection import Rule, overlap, select

RULES: tuple[Rule, ...] = get_args(Rule)


@st.composite
def top_tokens(draw: st.DrawFn) -> tuple[list[list[int]], list[list[list[int]]]]:
    """The student's ids [tokens][k] and the teachers' [hints][tokens][k]; few ids, so many are shared."""
    k = draw(st.integers(1, 4))
    row = st.permutations(range(6)).map(lambda ids: ids[:k])
    tokens = draw(st.integers(1, 5))
    reply = st.lists(row, min_size=tokens, max_size=tokens)
    return draw(reply), draw(st.lists(reply, min_size=1, max_size=4))


@given(top_tokens())
def test_the_overlap_is_the_size_of_the_intersection(
    tops: tuple[list[list[int]], list[list[list[int]]]],
) -> None:
    student, teachers = tops
    assert overlap(torch.tensor(student), torch.tensor(teachers)).tolist() == shared_tokens(student, teachers)


# Few values, so that ties are common.
counts = st.integers(1, 5).flatmap(
    lambda tokens: st.lists(
        st.lists(st.integers(0, 2), min_size=tokens, max_size=tokens), min_size=1, max_size=4
    )
)


@given(counts, st.sampled_from(RULES))
def test_the_choice_is_the_rule_with_ties_to_the_shorter_hint(shared: list[list[int]], rule: Rule) -> None:
    assert select(torch.tensor(shared), rule).tolist() == chosen_hints(shared, rule)


@given(counts, st.sampled_from(RULES))
def test_a_hint_twice_is_a_hint_once(shared: list[list[int]], rule: Rule) -> None:
    once = select(torch.tensor(shared), rule)
    assert torch.equal(select(torch.tensor([*shared, *shared]), rule), once)


@pytest.mark.parametrize("rule", RULES)
def test_where_nothing_is_shared_the_shortest_hint_teaches(rule: Rule) -> None:
    assert select(torch.zeros(3, 2, dtype=torch.int64), rule).tolist() == [0, 0]


def test_one_hint_for_the_reply_or_one_for_each_token() -> None:
    shared = torch.tensor([[4, 0, 0], [0, 2, 3]])
    assert select(shared, "sequence_optimal").tolist() == [1, 1, 1]
    assert select(shared, "token_optimal").tolist() == [0, 1, 1]
    assert select(shared, "shortest").tolist() == [0, 0, 0]
