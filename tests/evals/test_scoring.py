"""The score's two halves: what counts as one short sentence, and agreement with replies labelled by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.evals.brief_user import answer_terms
from openclaw_rl.evals.scoring import style_fault, useful_fault

LABELLED = [
    json.loads(line)
    for line in (Path(__file__).parent / "labelled_replies.jsonl").read_text(encoding="utf-8").splitlines()
]
"""170 finished replies of the base, of hinted and of trained models, labelled by a reader who asked of each:
does it say something that answers this question, be it right or wrong?"""


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("Tofu is made from soybeans.", ""),
        ("The Taj Mahal is in India", ""),
        ('They call it "burnout."', ""),
        ("It happened at 10.30 in St. Louis, Mo. today", "several sentences"),
        ("First this. Then that.", "several sentences"),
        ("1. Soybeans\n2. Water", "several lines"),
        ("word " * 26, "long"),
        ("word " * 25, ""),
        ("  \n ", "empty"),
    ],
)
def test_style_is_one_short_sentence(reply: str, fault: str) -> None:
    assert style_fault(reply) == fault


def test_a_reply_that_was_cut_is_not_useful() -> None:
    assert useful_fault("made from soy", ["soy"], finished=False) == "cut off"
    assert useful_fault("made from soy", ["soy"], finished=True) == ""


@pytest.mark.parametrize("cheat", ["True: the key to success.", "Sure, happy to help!", "Good question."])
def test_short_and_empty_replies_answer_at_most_one_question_of_forty(cheat: str) -> None:
    answered = [
        question
        for question, terms in answer_terms("held_out").items()
        if not useful_fault(cheat, terms, finished=True)
    ]
    assert len(answered) <= 1


def test_repeating_the_question_answers_it_never() -> None:
    for question, terms in answer_terms("held_out").items():
        assert useful_fault(question, terms, finished=True) == "no answer in it"


def test_usefulness_agrees_with_labels_by_hand() -> None:
    terms = answer_terms("held_out")
    verdicts = [not useful_fault(one["reply"], terms[one["question"]], finished=True) for one in LABELLED]
    labels = [one["answers"] for one in LABELLED]
    assert len(labels) >= 150
    agreement = sum(ours == label for ours, label in zip(verdicts, labels, strict=True)) / len(labels)
    accepted = [label for ours, label in zip(verdicts, labels, strict=True) if ours]
    print(f"agreement {agreement:.3f}, of accepted replies {sum(accepted) / len(accepted):.3f} answer")
    assert agreement >= 0.78
    assert sum(accepted) / len(accepted) >= 0.85
