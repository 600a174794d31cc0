"""What a sentence of a user's reply looks like to the dialogue act classifier: a set of named features.

Words and their order, the same order with words of one job replaced by the name of the job ("EDIT the PART"),
pieces of words for typing errors, characters for Chinese, and how the sentence shares words with the request
and the reply it follows. The names are what the weights file lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

_TOKEN = re.compile(
    r"[a-z]+(?:'[a-z]+)*|\d+|[\u4e00-\u9fff]+|[?!…,:]|[^\w\s\u4e00-\u9fff.,:;'\"()\[\]{}/\\-]"
)
_LATIN_MARKS = str.maketrans("？！，：；", "?!,:;")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|`[^`\n]+`")
_LONG_DRAWN = re.compile(r"([a-z])\1{2,}")
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")
_FUNCTION_WORD_LIST = """
    a an the this that these those it its it's that's there here what who whom whose which when where why how
    what's who's where's how's here's there's i me my mine we us our you your yours u ur he him his she her
    they them their one
    i'm i'd i'll i've we're we'd we'll you're you'd you've you'll they're he's she's let's let
    is are was were be been being am do does did done doing have has had having can could will would shall
    should may might must need needs ought isn't aren't wasn't weren't don't doesn't didn't haven't hasn't
    can't couldn't won't wouldn't shouldn't mustn't dont doesnt didnt cant isnt im thats its
    not no none never nothing nobody neither nor without
    and or but so because though although however except instead rather than then if while as like unless
    of in on at to for from by with about into onto over under between before after above below out off up
    down back again through per within
    please pls plz just only also too very really quite pretty way so much many more most less least few fewer
    little bit lot lots even still already yet ever always often enough almost nearly both all any some every
    each other another same such own else now next later today tomorrow yesterday first second third last
    want wanted wants said say says asked ask told tell meant mean got get gets go goes going know knew think
    thought see look looks sound sounds feel feels read reads seem seems try tried prefer use used make made
    give gave put keep stop
    ok okay yes no yeah yep nope oh ah hm hmm well sorry hello hey btw sure maybe actually anyway next
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())
_REFERRING = frozenset("it that this those these they them there then he she its".split())
_ASKING = frozenset(
    "what who which when where why how is are do does did can could would will should".split()
)
_ENDINGS = ("ing", "ed", "er", "est", "ly", "s")
_STOP_WORD_LIST = """
    a an the is are was were be been do does did can could would will should shall may might must have
    has had i you he she it we they me my your our this that these those what which who whom whose when
    where why how of in on at to for from by with about as and or so but if then than please tell there
    s t again just not no it's that's i'm don't
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
_STOP_CHARACTERS = str.maketrans("", "", "的了是吗呢吧啊到底请问我你一下么哪里怎什")
_WORD = re.compile(r"[a-z0-9']+")


def features(sentence: str, request: str = "", reply: str = "") -> set[str]:
    """The features of one sentence that follows `reply`, which answered `request`."""
    plain = _QUOTED.sub(" quoted ", sentence.lower().replace("’", "'"))
    plain = plain.translate(_LATIN_MARKS)
    plain = _LONG_DRAWN.sub(r"\1\1", plain)
    tokens = _tokens(plain)
    found = {"bias", f"words:{_bucket(_length(tokens))}"}
    if re.search(r"\?\s*$", plain):
        found.add("asks")
    if "!" in plain:
        found.add("exclaims")
    if plain.rstrip().endswith(("...", "…", "..")):
        found.add("trails off")
    words = [token for token in tokens if not _CHINESE.fullmatch(token)]
    found.update(_grams("w", words, (1, 2, 3)))
    found.update(_grams("s", [shape(word) for word in words], (1, 2, 3, 4)))
    for word in words:
        found.update(f"c:{piece}" for piece in _pieces(word))
    for run in (token for token in tokens if _CHINESE.fullmatch(token)):
        found.update(_grams("z", list(run), (1, 2, 3, 4)))
    found.update(_shared(plain, request, reply, set(words)))
    return found


def shape(word: str) -> str:
    """The job of a word: itself if it is a function word, else its class, else "_" with its ending."""
    classes = word_classes()
    if word in _FUNCTION_WORDS or not word[0].isalpha():
        return "0" if word.isdigit() else classes.get(word, word)
    for stem in _stems(word):
        if stem in classes:
            return classes[stem]
    ending = next((e for e in _ENDINGS if word.endswith(e) and len(word) > len(e) + 2), "")
    return f"_{ending}"


def content(text: str) -> set[str]:
    """Content words with plural and verb endings cut, and for Chinese pairs of characters."""
    text = text.lower()
    words = {word.replace("'s", "") for word in _WORD.findall(text)} - _STOP_WORDS
    found = {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words}
    for run in _CHINESE.findall(text):
        run = run.translate(_STOP_CHARACTERS)
        found.update(run[i : i + 2] for i in range(len(run) - 1))
    return found


@cache
def word_classes() -> dict[str, str]:
    """For each listed word the class it is in; a word of two classes has both, as in "EDIT+PART"."""
    found: dict[str, list[str]] = {}
    text = files("openclaw_rl.judge").joinpath("data/word_classes.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, words = line.split(":", 1)
            for word in words.split():
                found.setdefault(word, []).append(name)
    return {word: "+".join(names) for word, names in found.items()}


def _tokens(plain: str) -> list[str]:
    return _TOKEN.findall(plain)


def _length(tokens: Sequence[str]) -> int:
    """In words; two Chinese characters count as one."""
    return sum((len(token) + 1) // 2 if _CHINESE.fullmatch(token) else 1 for token in tokens)


def _bucket(count: int) -> str:
    return next((str(most) for most in (1, 2, 4, 7, 12, 20) if count <= most), "more")


def _stems(word: str) -> Iterator[str]:
    yield word
    for ending in ("s", "es", "ed", "d", "ing", "er"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            stem = word.removesuffix(ending)
            yield stem
            yield stem + "e"
            if len(stem) > 3 and stem[-1] == stem[-2]:
                yield stem[:-1]


def _grams(family: str, tokens: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
    """Runs of tokens with the edges of the sentence marked; single tokens without."""
    if not tokens:
        return
    edged = ["^", *tokens, "$"]
    for size in sizes:
        source = tokens if size == 1 else edged
        for start in range(len(source) - size + 1):
            yield f"{family}:{' '.join(source[start : start + size])}"


def _pieces(word: str) -> Iterator[str]:
    """Four-letter pieces of a longer word, with its edges marked."""
    if len(word) >= 4:
        edged = f"<{word}>"
        yield from (edged[start : start + 4] for start in range(len(edged) - 3))


def _shared(sentence: str, request: str, reply: str, words: set[str]) -> Iterator[str]:
    ours, asked, said = content(sentence), content(request), content(reply)
    if not ours:
        yield "no content"
        return
    of_request = len(ours & asked) / len(ours)
    of_reply = len(ours & (said - asked)) / len(ours)
    yield f"of the request:{_share(of_request)}"
    yield f"of the reply:{_share(of_reply)}"
    refers = "refers back" if words & _REFERRING else "stands alone"
    yield refers
    if sentence.rstrip().endswith("?") or words & _ASKING:
        yield f"a question that {refers} with {min(4, len(ours - asked - said))} new"
    if asked:
        yield f"covers the request:{_share(len(ours & asked) / len(asked))}"


def _share(value: float) -> str:
    return next(
        (name for most, name in ((0, "none"), (0.34, "some"), (0.67, "half")) if value <= most), "most"
    )
