"""The teacher's lessons on a tiny real model: what it is asked, what it prefers, and whose weights it has."""

from __future__ import annotations

import pytest
import torch
from judged_samples import HINT, a_sample
from learnable_model import sample_turn

from openclaw_rl.learn.batch import student
from openclaw_rl.learn.batch import teacher as hinted
from openclaw_rl.learn.scoring import Scorer
from openclaw_rl.learn.teacher import Lesson, Teacher
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.network import Network

SHORT_HINT = "Be brief."


@pytest.fixture(scope="module")
def scorer(network: Network) -> Scorer:
    """Of a policy that is no longer its base, with passes so small that hints of a sample are split."""
    adapter = Adapter.fresh(network.adapted, 4, 8, 0)
    torch.manual_seed(3)
    for parameter in adapter.tensors().values():
        parameter.add_(torch.randn_like(parameter) * 0.05)
    return Scorer(network, adapter, network, 100, lambda: None)


@pytest.fixture(scope="module")
def samples(network: Network, template: ChatTemplate) -> dict[int, Sample]:
    return {
        4: a_sample(sample_turn(network, template, temperature=0.7)),
        9: a_sample(sample_turn(network, template, "Why?", max_tokens=3)),
    }


def sampled_tokens(samples: dict[int, Sample]) -> dict[int, torch.Tensor]:
    return {index: torch.tensor(s.turn.response_ids).unsqueeze(1) for index, s in samples.items()}


@pytest.mark.parametrize("use_base", [True, False])
def test_each_hint_gives_one_lesson_in_the_order_of_the_hints(
    scorer: Scorer, template: ChatTemplate, samples: dict[int, Sample], use_base: bool
) -> None:
    hints = {4: [SHORT_HINT, HINT], 9: [HINT]}
    found = Teacher(scorer, template, use_base).lessons(samples, hints, sampled_tokens(samples))
    assert {index: len(lessons) for index, lessons in found.items()} == {4: 2, 9: 1}
    for index, of_sample in hints.items():
        for hint, lesson in zip(of_sample, found[index], strict=True):
            part = hinted(index, samples[index], hint, template)
            expected = scorer.log_probs([part], use_base=use_base)[index]
            torch.testing.assert_close(lesson.asked.squeeze(1), expected, rtol=0, atol=1e-4)


def test_a_lesson_holds_the_teachers_likeliest_tokens_and_their_log_probs(
    scorer: Scorer, template: ChatTemplate, samples: dict[int, Sample]
) -> None:
    vocabulary = 258
    tokens = len(samples[4].turn.response_ids)
    asked = {4: torch.arange(vocabulary).expand(tokens, vocabulary)}
    (lesson,) = Teacher(scorer, template, True).lessons({4: samples[4]}, {4: [HINT]}, asked, top_k=5)[4]
    everything = lesson.asked.exp().sum(-1)
    torch.testing.assert_close(everything, torch.ones(tokens), rtol=0, atol=1e-5)
    best = lesson.asked.topk(5)
    assert torch.equal(lesson.top_ids, best.indices)
    torch.testing.assert_close(lesson.top, best.values)
    assert not lesson.asked.requires_grad


def test_anchors_are_the_base_without_any_hint(
    scorer: Scorer, template: ChatTemplate, samples: dict[int, Sample]
) -> None:
    # Whoever teaches, the anchor is the base.
    found = Teacher(scorer, template, use_base=False).anchors(samples, sampled_tokens(samples))
    for index, sample in samples.items():
        (lesson,) = found[index]
        expected = scorer.log_probs([student(index, sample)], use_base=True)[index]
        torch.testing.assert_close(lesson.asked.squeeze(1), expected, rtol=0, atol=1e-4)
        # The base has sampled these turns, so it says what was recorded.
        recorded = torch.tensor(sample.turn.logprobs)
        torch.testing.assert_close(lesson.asked.squeeze(1), recorded, rtol=0, atol=1e-4)


def test_a_hinted_prompt_that_outgrows_the_context_is_a_lesson_less(
    scorer: Scorer, template: ChatTemplate, samples: dict[int, Sample]
) -> None:
    endless = "word " * 400
    teacher, asked = Teacher(scorer, template, True), sampled_tokens(samples)
    found = teacher.lessons(samples, {4: [SHORT_HINT, endless], 9: [endless]}, asked)
    assert list(found) == [4]
    assert len(found[4]) == 1
    alone: Lesson = teacher.lessons(samples, {4: [SHORT_HINT]}, asked)[4][0]
    torch.testing.assert_close(found[4][0].asked, alone.asked, rtol=0, atol=1e-4)


def test_without_hints_nothing_is_asked(
    scorer: Scorer, template: ChatTemplate, samples: dict[int, Sample]
) -> None:
    assert Teacher(scorer, template, True).lessons(samples, {}, sampled_tokens(samples)) == {}
    assert Teacher(scorer, template, True).anchors({}, {}) == {}
