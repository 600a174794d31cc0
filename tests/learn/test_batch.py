"""How samples become tokens: which logits are kept, where the hint goes, and how passes are filled."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judged_samples import HINT, a_sample
from learnable_model import sample_turn

from openclaw_rl.learn.batch import Packed, Scored, packed, student, teacher, with_hint
from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.network import Network

token_lists = st.lists(st.integers(0, 250), min_size=1, max_size=9).map(tuple)
scored_lists = st.lists(
    st.tuples(token_lists, token_lists, st.sampled_from([0.0, 0.7, 1.0])), min_size=1, max_size=6
).map(lambda found: tuple(Scored(9 - place, *parts) for place, parts in enumerate(found)))


@given(scored_lists)
def test_each_kept_position_predicts_its_target(parts: tuple[Scored, ...]) -> None:
    expected: list[tuple[int, int, int, float]] = []
    row: list[int] = []
    for part in parts:
        whole = part.prompt_ids + part.response_ids
        for place in range(len(whole) - 1):
            if place + 1 >= len(part.prompt_ids):
                expected.append((len(row), whole[place + 1], part.index, part.temperature))
            row.append(whole[place])
    group = Packed(parts)
    assert [token for sequence in group.sequences for token in sequence] == row
    assert group.keep().tolist() == [kept for kept, *_ in expected]
    assert group.targets().tolist() == [target for _, target, *_ in expected]
    assert group.samples().tolist() == [index for *_, index, _ in expected]
    torch.testing.assert_close(group.temperatures(), torch.tensor([t for *_, t in expected]))


@given(scored_lists, st.integers(1, 40))
def test_passes_hold_every_part_once_in_order_and_stay_within_their_tokens(
    parts: tuple[Scored, ...], tokens: int
) -> None:
    groups = list(packed(parts, tokens))
    assert tuple(part for group in groups for part in group.parts) == parts
    for group in groups:
        assert len(group.parts) == 1 or sum(len(sequence) for sequence in group.sequences) <= tokens


def test_a_pass_is_filled_before_the_next_begins() -> None:
    parts = [Scored(index, (1, 2, 3), (4, 5), 1.0) for index in range(5)]  # four tokens each
    assert [len(group.parts) for group in packed(parts, 8)] == [2, 2, 1]


def test_nothing_to_pack_is_no_pass() -> None:
    assert list(packed([], 100)) == []


def test_the_student_sees_the_stored_tokens(network: Network, template: ChatTemplate) -> None:
    turn = sample_turn(network, template, temperature=0.7)
    part = student(3, a_sample(turn))
    assert (part.index, part.prompt_ids, part.response_ids) == (3, turn.prompt_ids, turn.response_ids)
    assert part.temperature == 0.7


def test_the_teacher_reads_the_hint_in_the_last_user_message_before_the_same_reply(
    network: Network, template: ChatTemplate
) -> None:
    messages: tuple[Message, ...] = (
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Second."},
    )
    turn = sample_turn(network, template, messages=messages, temperature=0.7)
    part = teacher(5, a_sample(turn), HINT, template)
    assert part.index == 5
    assert part.temperature == 0.7
    assert part.response_ids == turn.response_ids
    assert part.token_ids[-len(turn.response_ids) + 1 :] == turn.response_ids[:-1]
    prompt = template.decode(part.prompt_ids, skip_special_tokens=False)
    assert prompt == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nFirst.<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n"
        f"<|im_start|>user\nSecond.\n\n{HINT}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_teacher_sees_the_tools_that_the_turn_had(network: Network, template: ChatTemplate) -> None:
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {}}}
    turn = sample_turn(network, template, tools=(tool,))
    part = teacher(0, a_sample(turn), HINT, template)
    assert "read_file" in template.decode(part.prompt_ids)


CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "changed", "content"),
    [
        ([{"role": "user", "content": "Hi"}], 0, "Hi\n\nShorter."),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            0,
            "a\nb\n\nShorter.",
        ),
        ([{"role": "system", "content": "Greet."}], 0, "Greet.\n\nShorter."),
        (
            [
                {"role": "user", "content": "Read it.", "name": "Ann"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "contents"},
            ],
            0,
            "Read it.\n\nShorter.",
        ),
        (
            [{"role": "system", "content": "Go."}, {"role": "assistant", "tool_calls": [CALL]}],
            1,
            "\n\nShorter.",
        ),
    ],
)
def test_the_hint_joins_the_last_user_message_or_else_the_last(
    messages: list[Message], changed: int, content: str
) -> None:
    before = deepcopy(messages)
    hinted = with_hint(messages, "Shorter.")
    assert messages == before
    assert hinted[changed] == {**messages[changed], "content": content}
    assert [m for place, m in enumerate(hinted) if place != changed] == [
        m for place, m in enumerate(messages) if place != changed
    ]
