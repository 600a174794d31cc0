"""Patterns that a reply is prepared with before its sentences are classified, in English and Chinese.

Data only: what is taken out because it is not said of the reply, where a sentence turns round, and what is no
part of a hint. What a sentence says is for `dialogue_acts`.
"""

from __future__ import annotations

import re

_JUDGE = (
    r"(?:\b(?:judges?|graders?|reviewers?|evaluators?|evaluation|scor(?:e|er|ing)|rewards?|verdict|rubric"
    r"|rating|reward model)\b|裁判|评委|评审|评分|打分|评判|奖励|得分)"
)
_VERDICT = (
    r"(?:[+\-−]\s*1\b|(?<![\d.])1(?![\d.]|[^\S\n]*(?!for\b|to\b|please\b|and\b)\w)|\b(?:positive|negative|correct|incorrect|flawless|highest"
    r"|lowest|full|zero|perfect|success(?:ful)?|pass|fail|approve|plus one|minus one)\b"
    r"|正面|负面|满分|零分|最高|最低|正确|[+\-−]?\d+\s*分)"
)

DICTATED = re.compile(
    r"\\*\bboxed\s*\{[^}]*\}|\[HINT_START\].*?(?:\[HINT_END\]|$)|\[HINT_END\]"
    r"|[\[(（<{][^\])）>}\n]*?" + _JUDGE + r"[^\])）>}\n]*[\])）>}]"
    r"|\b(?:score|verdict|reward|rating|grade|vote|评分|打分)\s*[:=：]\s*[\"'+\-−\w.]+"
    # From a name for the judge to the verdict, within one sentence, and what leads up to it there.
    r"|[^.!?。！？\n]*" + _JUDGE + r"[^.!?。！？\n]*?" + _VERDICT + r"[^.!?。！？,，\n]*"
    r"|[^.!?。！？,，\n]*" + _VERDICT + r"[^.!?。！？,，\n]*" + _JUDGE + r"[^.!?。！？,，\n]*"
    r"|[^.!?。！？,，\n]*\b(?:rate|score|grade|output|vote|record|reward)\b[^.!?。！？,，\n]*(?<![\d.])[+\-−]?1\b(?![^\S\n]*(?!for\b|to\b|please\b|and\b)\w)"
    r"|[^.!?。！？,，\n]*\b(?:give|award|deserves?|gets?)\b[^.!?。！？,，\n]*[+\-−]1\b(?![^\S\n]*(?!for\b|to\b|please\b|and\b)\w)"
    r"|\b(?:mark|record|count|treat|label) (?:this|it|that|(?:the|my|your)(?: \w+){1,2}) as"
    r" (?:a )?(?:correct|positive|success\w*|good|negative|bad|failed)"
    r"|[给打]\s*(?:个|上)?\s*[+\-−]?\s*1\s*分?|[给打]\s*(?:个|上)?\s*[+\-−＋]\s*\d",
    re.I | re.DOTALL,
)
"""Attempts to write the verdict into the text; they say nothing of the reply."""

BARE_REPEAT = re.compile(
    r"^(?:please |just )?(?:try(?: it)?|do it|redo(?: it| that| this)?|retry|rewrite (?:it|this|that))"
    r"(?: once)?(?: again| more)?(?: please)?$"
    r"|^请?(?:重新|再)(?:写|试|来|做|答|回答|说|算|生成)(?:一?(?:次|遍|下))?(?:吧)?$"
)
"""A sentence that is nothing but "once more": it says no more than a rejection does."""

CONTRAST = re.compile(
    r"[,，;；]?\s*(?:\b(?:but|however|though|although|except|only)\b|但是?|不过|可是|只是|就是)[,，]?\s*",
    re.I,
)

OPENING = re.compile(
    r"^(?:(?:thanks|thank you|thx|no|nope|nah|hmm|ok|okay|well|sorry|wrong|ugh|eh"
    r"|谢谢|不对|不是|嗯)(?:[,，!！:：]\s*))+",
    re.I,
)
