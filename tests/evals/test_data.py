"""The simulated users' data: enough of it, no duplicates, and nothing held out that was trained on."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

import pytest

DATA = files("openclaw_rl.evals") / "data"
TRAIN, HELD_OUT = "questions_train.txt", "questions_held_out.txt"

# Words that say how something is asked, not what about.
FORM_WORDS = """
a about all am an and any are as at be been by can could did do does explain for from get gets go had has
have how i if in into is it its make makes me my of on or our out please should so tell than that the their
them they this to us was we were what when where which who whom why will with would you your
"""
YES_NO_OPENING = re.compile(r"(is|are|was|were|do|does|did|has|have|will|should|may|can|could|would)\b", re.I)
POLITE_OPENING = re.compile(r"(can|could|would|will) you (please )?(tell|explain)\b", re.I)
INSTRUCTION = re.compile(
    r"\b(answer|boil|cut|explain|finish|give|keep|limit|make|name|put|reply|respond|say|state|stop|sum|tell|use"
    r"|want|write)\b",
    re.I,
)
ONE_SHORT_SENTENCE = re.compile(
    r"(?=.*\b(one|single)\b)(?=.*\b(short|brief)\b)(?=.*\b(sentence|line)\b)|one-sentence.*\bshort", re.I
)


def questions(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="ascii").splitlines()


def brief() -> dict[str, list[str]]:
    return tomllib.loads((DATA / "brief.toml").read_text(encoding="ascii"))


def answer_terms() -> dict[str, list[str]]:
    """By question, the beginnings of words that an attempt at an answer would use."""
    terms: dict[str, list[str]] = tomllib.loads((DATA / "answers_held_out.toml").read_text(encoding="ascii"))[
        "terms"
    ]
    return terms


def normalised(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def content_words(question: str) -> set[str]:
    words = set(re.findall(r"[a-z0-9]+", question.lower())) - set(FORM_WORDS.split())
    return {re.sub(r"(?<=...)(ies|es|s|ing|ed)$", "", word) for word in words}


def likeness(one: str, other: str) -> float:
    """Jaccard index of the content words."""
    mine, theirs = content_words(one), content_words(other)
    return len(mine & theirs) / len(mine | theirs)


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+", text)


def test_the_likeness_measure_sees_through_a_rewording() -> None:
    assert likeness("Why do cats purr?", "Tell me why a cat purrs.") == 1.0
    assert likeness("Why do cats purr?", "Why do dogs bark?") == 0.0


@pytest.mark.parametrize(("name", "count"), [(TRAIN, 240), (HELD_OUT, 80)])
def test_a_question_file_holds_its_number_of_questions(name: str, count: int) -> None:
    assert len(questions(name)) == count


@pytest.mark.parametrize("name", [TRAIN, HELD_OUT])
def test_questions_are_short_single_lines_without_stray_spaces(name: str) -> None:
    bad = [q for q in questions(name) if not 4 <= len(q.split()) <= 14 or q != " ".join(q.split())]
    assert bad == []


@pytest.mark.parametrize("name", [TRAIN, HELD_OUT])
def test_questions_ask_for_more_than_yes_or_no(name: str) -> None:
    bad = [q for q in questions(name) if YES_NO_OPENING.match(q) and not POLITE_OPENING.match(q)]
    assert bad == []


def test_no_question_occurs_twice_in_either_file() -> None:
    everything = [normalised(question) for name in (TRAIN, HELD_OUT) for question in questions(name)]
    assert len(set(everything)) == len(everything)


def test_no_held_out_question_resembles_a_training_question() -> None:
    training = questions(TRAIN)
    close = [(h, t) for h in questions(HELD_OUT) for t in training if likeness(h, t) >= 0.5]
    assert close == []


@pytest.mark.parametrize("name", [TRAIN, HELD_OUT])
def test_the_questions_of_one_file_are_about_different_things(name: str) -> None:
    asked = questions(name)
    close = [(a, b) for i, a in enumerate(asked) for b in asked[:i] if likeness(a, b) >= 0.5]
    assert close == []


def test_the_brief_user_has_enough_to_say_of_each_kind() -> None:
    least = {"too_long": 24, "too_long_implicit": 12, "empty": 24, "cut_off": 8, "pleased": 24}
    words = brief()
    assert words.keys() == least.keys()
    assert {kind: len(words[kind]) for kind in least if len(words[kind]) < least[kind]} == {}


def test_the_brief_user_never_says_the_same_thing_twice() -> None:
    everything = [normalised(entry) for entries in brief().values() for entry in entries]
    assert len(set(everything)) == len(everything)


def test_the_brief_user_is_brief() -> None:
    long = [entry for entries in brief().values() for entry in entries if not 1 < len(entry.split()) <= 25]
    assert long == []


@pytest.mark.parametrize("kind", ["too_long", "empty"])
def test_each_explicit_complaint_holds_an_instruction_for_one_short_sentence(kind: str) -> None:
    lacking = [
        entry
        for entry in brief()[kind]
        if not any(INSTRUCTION.search(part) and ONE_SHORT_SENTENCE.search(part) for part in sentences(entry))
    ]
    assert lacking == []


def test_each_cut_off_complaint_holds_an_instruction_for_a_finished_sentence() -> None:
    finished = re.compile(r"complete|finish|full stop|to an end", re.I)
    lacking = [
        entry
        for entry in brief()["cut_off"]
        if not any(
            INSTRUCTION.search(part) and finished.search(part) and "sentence" in part
            for part in sentences(entry)
        )
    ]
    assert lacking == []


@pytest.mark.parametrize("kind", ["too_long_implicit", "pleased"])
def test_remarks_without_a_wish_hold_no_instruction_about_sentences(kind: str) -> None:
    assert [entry for entry in brief()[kind] if re.search(r"\b(sentence|line)\b", entry)] == []


def test_each_of_the_first_held_out_questions_has_its_answer_terms() -> None:
    assert list(answer_terms()) == questions(HELD_OUT)[:40]


def test_answer_terms_are_enough_distinct_lower_case_word_beginnings() -> None:
    terms = answer_terms()
    assert [
        q for q, stems in terms.items() if not 6 <= len(stems) <= 25 or len(set(stems)) < len(stems)
    ] == []
    assert [stem for stems in terms.values() for stem in stems if not re.fullmatch(r"[a-z0-9]+", stem)] == []


def test_no_answer_term_begins_a_word_of_its_question() -> None:
    repeated = [
        (question, stem)
        for question, stems in answer_terms().items()
        for stem in stems
        if any(word.startswith(stem) for word in normalised(question).split())
    ]
    assert repeated == []
