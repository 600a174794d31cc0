"""The sentences from which the dialogue act classifier is fitted, each with its act and the talk around it.

Reads the files of `training/`: lists by act, templates filled with random things so that no topic leans to an
act, and short conversations. The development half of the bench joins them; the held-out half never does.
"""

from __future__ import annotations

import hashlib
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import cast

from openclaw_rl.evals.judge_bench.cases import load
from openclaw_rl.judge.dialogue_acts import ACTS, Act
from openclaw_rl.judge.transcript import text_of, words_of

FILLINGS = 6
"""How often each template is filled."""
CONTEXTS = 6
"""With how many requests each way of asking again is shown."""

LISTS = (*ACTS, "implicit")
OTHER_FILES = ("templates", "nouns", "contexts", "conversations")

_ACT_OF_KIND: dict[str, Act] = {
    "approval": "approve",
    "implicit approval": "approve",
    "moved on": "task",
    "follow-up": "follow_up",
    "neutral": "neutral",
    "complaint": "complain",
    "implicit complaint": "complain",
    "correction": "instruct",
    "asked again": "ask_again",
}
_INSTRUCTS = re.compile(
    r"(?=.*\b(?:short|brief)\b)(?=.*\b(?:sentence|line)\b)|\bone-sentence\b|^shorter", re.I
)
_SENTENCE_INSIDE = re.compile(r"[.!?。！？…]+\s*\S")


@dataclass(frozen=True, slots=True)
class Example:
    """One sentence of a user with its act, after `reply`, which answered `request`."""

    act: Act
    sentence: str
    request: str
    reply: str


def examples(seed: int = 0) -> list[Example]:
    """All of them, without those of the development half, in an order that `seed` decides."""
    draw = random.Random(seed)
    contexts = [tuple(line.split(" || ", 1)) for line in _lines("contexts")]
    made: list[Example] = []
    for act, sentence in (*_listed(), *_filled(draw)):
        fitting = [context for context in contexts if _chinese(context[0]) == _chinese(sentence)]
        if "{r}" in sentence:
            for request, reply in draw.sample(fitting, CONTEXTS):
                made.append(Example(act, sentence.replace("{r}", _as_typed(request, draw)), request, reply))
        else:
            made.append(Example(act, sentence, *draw.choice(fitting)))
    return [*made, *_conversations(), *_of_the_demo(draw)]


def development_examples() -> list[Example]:
    """The one-sentence user replies of the development half."""
    found = []
    for case in load("development"):
        act, message = _ACT_OF_KIND.get(case.kind), case.next_state.messages[0]
        sentence = words_of(message)
        if act and message["role"] == "user" and not _SENTENCE_INSIDE.search(sentence):
            found.append(Example(act, sentence, text_of(case.turn.messages[0]), text_of(case.turn.reply)))
    return found


def fingerprint() -> str:
    """A digest of all training text and word classes: weights are of this text if they name this digest."""
    digest = hashlib.sha256()
    names = [name for name in _file_names() if _exists(name)]
    for name in sorted(names):
        digest.update(_text(name).encode())
    digest.update(files("openclaw_rl.judge").joinpath("data/word_classes.txt").read_bytes())
    digest.update(files("openclaw_rl.evals").joinpath("data/brief.toml").read_bytes())
    digest.update(files("openclaw_rl.judge").joinpath("act_features.py").read_bytes())
    digest.update(files("openclaw_rl.evals.judge_bench").joinpath("data/development.jsonl").read_bytes())
    return digest.hexdigest()[:16]


def sentences() -> list[str]:
    """Every sentence and template as it is written down."""
    return [sentence for _, sentence in _listed()] + [
        line.split(" || ", 1)[-1] for name in ("templates", "conversations") for line in _lines(name)
    ]


def _listed() -> Iterator[tuple[Act, str]]:
    for name in _file_names():
        act = name.split(".")[0]
        if act in LISTS and _exists(name):
            yield from _by_act(name, act)


def _filled(draw: random.Random) -> Iterator[tuple[Act, str]]:
    things = {name: [word.strip() for word in words.split(",")] for name, words in _by_heading("nouns", "")}
    for act, template in _by_act("templates", ""):
        for _ in range(FILLINGS):
            yield act, re.sub(r"\{(\w+)\}", lambda hole: draw.choice(things[hole[1]]), template)


def _conversations() -> Iterator[Example]:
    request = reply = ""
    for line in _lines("conversations"):
        left, right = line.split(" || ", 1)
        if left.startswith("> "):
            request, reply = left[2:], right
        else:
            yield Example(cast(Act, left), right, request, reply)


def _of_the_demo(draw: random.Random) -> Iterator[Example]:
    """What the demo's simulated user says, whose sentences with "short" are those that instruct."""
    data = files("openclaw_rl.evals").joinpath("data")
    asked = data.joinpath("questions_train.txt").read_text(encoding="utf-8").splitlines()
    for mood, replies in tomllib.loads(data.joinpath("brief.toml").read_text(encoding="utf-8")).items():
        for reply in replies:
            for sentence in re.split(r"(?<=[.!?]) ", reply):
                instructs = mood not in ("pleased", "too_long_implicit") and _INSTRUCTS.search(sentence)
                act: Act = "approve" if mood == "pleased" else "instruct" if instructs else "complain"
                yield Example(act, sentence, draw.choice(asked), "")


def _by_act(name: str, act: str) -> Iterator[tuple[Act, str]]:
    for heading, line in _by_heading(name, act):
        yield cast(Act, heading.split()[0]), line


def _by_heading(name: str, heading: str) -> Iterator[tuple[str, str]]:
    """Lines with the last "= heading" above them."""
    for line in _lines(name):
        if line.startswith("= "):
            heading = line[2:]
        else:
            yield heading, line


def _lines(name: str) -> list[str]:
    return [line for line in _text(name).splitlines() if line.strip() and not line.startswith("#")]


def _text(name: str) -> str:
    return files("openclaw_rl.evals.judge_bench").joinpath(f"training/{name}.txt").read_text(encoding="utf-8")


def _exists(name: str) -> bool:
    return files("openclaw_rl.evals.judge_bench").joinpath(f"training/{name}.txt").is_file()


def _file_names() -> list[str]:
    return [*LISTS, *(f"{act}.zh" for act in LISTS), *OTHER_FILES]


def _chinese(text: str) -> bool:
    return bool(re.search(r"[\u4e00-\u9fff]", text))


def _as_typed(request: str, draw: random.Random) -> str:
    """A request as it stands inside another sentence."""
    said = request if _chinese(request) else request[0].lower() + request[1:]
    return said.rstrip("?.。？") if draw.random() < 0.5 else said
