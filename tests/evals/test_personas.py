"""The personas: enough to say, understood by the judge, and rules that mean what they say."""

from __future__ import annotations

import pytest
from test_data import likeness, normalised

from openclaw_rl.evals.personalise import styles
from openclaw_rl.evals.personalise.personas import MOODS, PERSONAS, Persona, again
from openclaw_rl.evals.personalise.questions import QuestionSet, every_question, questions
from openclaw_rl.evals.personalise.user import User
from openclaw_rl.evals.scoring import useful_fault
from openclaw_rl.judge.user_replies import read_reply

EVERY_PERSONA = [pytest.param(persona, id=name) for name, persona in PERSONAS.items()]

QUESTION = "Why do leaves fall in autumn?"
LONG = "Leaves fall in autumn because trees save water. " * 8
PLAIN = "Leaves fall because the tree saves water in the cold season. It grows new ones in spring."
LISTED = "1. Trees save water.\n2. Light is short.\n3. New leaves come in spring."


def test_there_are_enough_answerable_questions_in_each_set() -> None:
    assert len(questions("train")) >= 200
    assert len(questions("held_out")) >= 64


def test_every_answerable_question_is_known() -> None:
    assert questions("train").keys() <= every_question("train").keys()
    assert questions("held_out").keys() <= every_question("held_out").keys()


def test_no_held_out_question_resembles_one_that_is_talked_about() -> None:
    training = list(every_question("train"))
    close = [(h, t) for h in questions("held_out") for t in training if likeness(h, t) >= 0.5]
    assert close == []


@pytest.mark.parametrize("name", ["train", "held_out"])
def test_no_term_of_an_answer_stands_in_its_question(name: QuestionSet) -> None:
    echoes = [
        (question, term)
        for question, terms in every_question(name).items()
        for term in terms
        if not useful_fault(question, [term], finished=True)
    ]
    assert echoes == []


@pytest.mark.parametrize("persona", EVERY_PERSONA)
def test_a_persona_has_twenty_ways_to_correct_and_some_that_only_imply(persona: Persona) -> None:
    assert set(persona.words) == set(MOODS)
    assert len(persona.words["explicit"]) >= 20
    assert len(persona.words["implicit"]) + len(again()) >= 16
    assert min(len(persona.words[mood]) for mood in ("empty", "cut_off", "pleased")) >= 5
    everything = [normalised(said) for mood in MOODS for said in persona.words[mood]]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("persona", EVERY_PERSONA)
def test_the_default_judge_reads_nearly_all_of_what_a_persona_says(persona: Persona) -> None:
    right = hints = 0
    for mood in MOODS:
        for words in persona.words[mood]:
            finding = read_reply(words, QUESTION, LONG)
            right += finding.score == (1 if mood == "pleased" else -1)
            hints += mood == "explicit" and finding.hint is not None
    assert right >= 0.9 * sum(len(persona.words[mood]) for mood in MOODS)
    assert hints >= 0.9 * len(persona.words["explicit"])


def test_asking_again_is_read_as_a_complaint_without_a_hint() -> None:
    found = [read_reply(words.format(question=QUESTION), QUESTION, LONG) for words in again()]
    assert {(finding.score, finding.hint) for finding in found} == {(-1, None)}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("Trees save water in winter.", ""),
        ("  Trees save water. \n", ""),
        ("", "empty"),
        ("Trees save water.\nThey rest.", "several lines"),
        ("Trees save water. They rest.", "several sentences"),
        ("tree " * 36, "long"),
        ("tree " * 35, ""),
    ],
)
def test_brief_means_one_sentence(reply: str, fault: str) -> None:
    assert styles.brief(reply) == fault


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (PLAIN, ""),
        ("Trees save water in winter.", ""),
        ("", "empty"),
        ("Trees save water.\nThey rest.", "several lines"),
        ("Trees save water. They rest. They wake.", "long"),
        ("tree " * 41, "long"),
        ("tree " * 40, ""),
    ],
)
def test_on_a_phone_two_sentences_fit(reply: str, fault: str) -> None:
    assert styles.phone(reply) == fault


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (PLAIN, ""),
        ("Trees save 1.5 liters a day, e.g. in winter.", ""),
        ("", "empty"),
        (LISTED, "formatted"),
        ("Trees save **water**.", "formatted"),
        ("# Leaves\nTrees save water.", "formatted"),
        ("Trees save water.\nThey rest.", "several paragraphs"),
        ("Certainly! Trees save water.", "sounds like a machine"),
        ("As an AI language model, I think trees rest.", "sounds like a machine"),
        ("I'm here to help you with trees.", "sounds like a machine"),
        ("One. Two. Three. Four.", "long"),
        ("tree " * 61, "long"),
    ],
)
def test_a_student_wants_plain_sentences(reply: str, fault: str) -> None:
    assert styles.student(reply) == fault


@pytest.mark.parametrize("persona", EVERY_PERSONA)
def test_a_user_says_what_the_reply_calls_for(persona: Persona) -> None:
    terms = {QUESTION: ["water"]}
    user = User(persona, terms, seed=1)
    good = {"brief": "Trees save water.", "phone": PLAIN, "student": PLAIN, "grader": LISTED}[persona.name]
    assert user.next_question() == QUESTION
    assert user.react(QUESTION, good, finished=True).mood == "pleased"
    assert user.react(QUESTION, good.replace("water", "energy"), finished=True).mood == "empty"
    assert user.react(QUESTION, "", finished=True).mood == "empty"
    styled = {user.react(QUESTION, LONG, finished=True).mood for _ in range(60)}
    assert styled == {"explicit", "implicit"}
    cut = {user.react(QUESTION, LONG, finished=False).mood for _ in range(60)}
    assert cut == {"explicit", "implicit", "cut_off"}


def test_a_user_asks_every_question_before_one_comes_again() -> None:
    terms = {f"Question {number}?": ["x"] for number in range(5)}
    user = User(PERSONAS["brief"], terms, seed=3)
    rounds = [[user.next_question() for _ in terms] for _ in range(2)]
    assert all(sorted(asked) == sorted(terms) for asked in rounds)
    again_from_the_start = User(PERSONAS["brief"], terms, seed=3)
    assert [again_from_the_start.next_question() for _ in terms] == rounds[0]


def test_some_complaints_only_ask_again() -> None:
    user = User(PERSONAS["student"], {QUESTION: ["water"]}, seed=0)
    said = [user.react(QUESTION, LONG, finished=True) for _ in range(300)]
    implied = [one for one in said if one.mood == "implicit"]
    assert 30 <= len(implied) <= 90
    assert any(QUESTION in one.words for one in implied)
    assert not any("{question}" in one.words for one in said)
