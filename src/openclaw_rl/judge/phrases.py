"""The phrases by which users of English and Chinese approve, complain, correct and move on.

Data only: compiled patterns, matched against one sentence or clause in lower case with straight
apostrophes. `user_replies` says how they are combined.
"""

from __future__ import annotations

import re


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


# Words that look like a rejection or a request and are none; taken out before those are looked for.
FRIENDLY_NEGATION = _any(
    r"\bkeep (?:it|this|that) up\b|\bjust (?:what (?:i|we)\b|the right\b)",
    r"\bnot (?:too )?bad\b(?: at all)?",
    r"\bno (?:problem|worries|need|doubt|rush|complaints|more (?:errors?|problems|issues|questions))\b",
    r"\b(?:nothing|couldn't be|can't get) (?:wrong|better)\b",
    r"\bnever mind\b",
    r"不错|没错|没问题|没关系|不客气|不用谢|太好了|太棒了|太感谢|太对了|对不起|没有问题",
)

APPROVAL = _any(
    r"\b(?:thanks?|thank you|thx|ty|cheers|appreciated?|grateful|kudos|bravo|hooray|yay)\b",
    r"\b(?:makes sense|did the trick|that's it|that's the one|so (?:quick|fast)|wow|haha|nailed it"
    r"|spot on)\b",
    r"\b(?:perfect|great|excellent|awesome|amazing|wonderful|brilliant|fantastic|lovely|superb|neat|super)\b",
    r"\b(?:just|exactly) (?:what|the) (?:i|we|right)\b|\bkeep (?:it|this|that) up\b|\bthat answers it\b",
    r"\b(?:nice|good|cool|helpful|clear|right|correct|exactly|yes|yep|yup|yeah|ok|okay|sure|lgtm|done"
    r"|solved)\b",
    r"\b(?:got it|love it|works|working|fixed it|well done|not (?:too )?bad|that helps|much better"
    r"|no worries)\b",
    r"\bno (?:problem|more errors?)\b",
    r"👍|👌|🙏|❤|🎉|✅|💯",
    r"谢谢|多谢|感谢|很好|不错|完美|太好了|太棒了|好的|明白了|懂了|可以了|没问题|没错|正确|厉害|赞|有帮助|^对$|^好$|^是的|谢啦|辛苦了|棒|收到|就对了|牛|满意",
)

COMPLAINT = _any(
    r"^(?:no|nope|nah|wrong|ugh)\b",
    r"^not (?:quite|really|exactly|that|what|this|right|good|like)\b",
    r"\b(?:wrong|incorrect|inaccurate|useless|terrible|awful|horrible|bad|broken|nonsense|unhelpful"
    r"|garbage)\b",
    r"\b(?:not|isn't|wasn't|aren't) (?:right|correct|true|accurate|helpful|good|enough|what i|working|how)",
    r"\b(?:doesn't|does not|didn't|did not|won't|can't) (?:\w+ )?(?:work|help|make sense|compile|run|match"
    r"|answer)",
    r"\bstill (?:fail|not|doesn't|isn't|broken|wrong|the same|getting|has|have|there)",
    r"\byou (?:didn't|did not|don't|forgot|missed|ignored|misunderstood|misread|skipped|failed|keep|never"
    r"|always)\b",
    r"\byou(?:'re| are) (?:not|still|ignoring|missing)\b",
    r"\bi (?:don't|do not|didn't) (?:like|want|need|understand|get)\b",
    r"\b(?:i'm|i am) (?:confused|lost|not happy)\b",
    r"\btoo (?:long|short|much|many|formal|casual|vague|complicated|complex|verbose|wordy|generic|technical"
    r"|brief|detailed|simple|dry|slow|big|small|abstract|cold|stiff|robotic)\b",
    r"\b(?:raises?|throws?|crash(?:es|ed)?|fails)\b",
    r"\bsounds? like (?:an? )?(?:ai|robot|bot|machine)\b|\bmade (?:that|it|this) up\b|\bhallucinat",
    r"\brambl(?:e|es|ed|ing)\b|\bmouthful\b|\bwall of text\b|\bencyclop\w+|\b(?:an?|the|whole) (?:\w+ )?"
    r"(?:essay|article|lecture|novel|speech|sermon)\b|\bon and on\b|\bglazed over\b|\ball day\b|\bvery long\b"
    r"|\bthat long\b|\bfor so long\b",
    r"\bcut off\b|\bstopped (?:in the middle|halfway|short|mid)|\bmid-?(?:air|sentence)\b|\bunfinished\b"
    r"|\bincomplete\b|\bnever finished\b|\bgot lost\b|\bempty\b|\bfiller\b",
    r"\bi (?:gave up|stopped reading|skipped (?:most|half|all|the rest))\b|\bas little as before\b",
    r"^why (?:did|do|are|would) you\b|^where(?:'s| is| are| did) (?:the|my|your)\b|^come on\b",
    r"\b(?:confus(?:ed|ing)|mixed up|mixing up|nothing to do with|off (?:by|topic)|beside the point)\b",
    r"\b(?:the |for the )(?:second|third|fourth|fifth|\d+th) time\b|\b(?:missing|outdated|irrelevant"
    r"|misleading)\b",
    r"不对|错了|不正确|不准确|有误|不是我(?:想)?要的|不是这个|还是不|不行|没用|没有用|答非所问|理解错|误解"
    r"|没(?:有)?(?:回答|理解|听懂|按|用)|不满意|看不懂|听不懂|没看懂|不喜欢|胡说|乱说|跑不通|报错|忘了|漏了|^不是|^不$|有问题|跑题|不清楚|不明白|说人话|不一致|不准|缺了"
    r"|少了",
    r"(?:太|过于)(?:长|短|多|少|正式|随意|复杂|啰嗦|简单|笼统|生硬|官方|模糊|慢)",
)

# The same thing asked for again, in so many words.
REASKED = _any(
    r"^again\b|\bonce (?:more|again)\b",
    r"\b(?:try|do|read|check|ask|asking|say|said|told|tell|telling)(?: \w+){0,3} again\b",
    r"\bi (?:already |just )?(?:asked|told you|said)\b|\b(?:as|like) i said\b|\bwhat i (?:asked|meant"
    r"|mean)\b",
    r"\banswer (?:my|the) question\b|\b(?:ignored?|missed?) my (?:question|request|point)\b|\bi meant\b",
    r"\blet me rephrase\b|\bin other words\b|^redo\b|^retry\b|\btry again\b",
    r"重新(?:写|来|做|回答|算|生成)|再(?:写|试|来|做|答|说)一?(?:次|遍|下)|我(?:问|说)的是|我(?:已经|刚才)?(?:问过|说过)",
)

# A sentence that is nothing but "once more": it says no more than a rejection does.
BARE_REPEAT = re.compile(
    r"^(?:please |just )?(?:try(?: it)?|do it|redo(?: it| that| this)?|retry|rewrite (?:it|this|that))"
    r"(?: once)?(?: again| more)?(?: please)?$"
    r"|^请?(?:重新|再)(?:写|试|来|做|答|回答|说|算|生成)(?:一?(?:次|遍|下))?(?:吧)?$"
)

_LEAD = (
    r"^(?:(?:please|pls|so|and|just|ok|okay|actually|then|next time|instead|hmm|also|now please|maybe"
    r"|you (?:should|must|need to|have to)|i(?:'d| would) like you to"
    r"|(?:can|could|would|will) (?:you|we|u)(?: please| just| maybe)?|let's),? )*"
)

# How the reply should have been: a correction on its own.
FORM_REQUEST = _any(
    _LEAD
    + r"(?:use|avoid|stop|don't|do not|never|no more|keep|make (?:it|this|that|the)|shorten|simplify|rewrite"
    r"|rephrase|reword|redo|revise|reformat|format|limit|leave out|get rid of|skip|be|respond|tone"
    r"|cut (?:it|the|down)"
    r"|start with|end with|say it|write it|put it|explain (?:it|this|that) (?:more|in|like|simply|again)"
    r"|(?:answer|reply|respond) (?:in|with|only|me|as|more|briefly|directly)"
    r"|(?:just |only )?give me (?:only|just|the))\b",
    r"^(?:please |and )?(?:just|only) (?!a (?:second|moment|minute)|kidding|curious|wonder|asking"
    r"|checking)\w+",
    r"\bjust give me\b|\bi was (?:talking|asking) about\b|\bi (?:speak|only read|live in)\b|\bfrom now on\b",
    _LEAD + r"(?:stick to|respect|follow|match|mind|watch|leave|shorten|expand|lose|ditch|halve)\b",
    r"\b(?:it|this|that) (?:needs|lacks|could use|is missing)\b|\b(?:half|twice) (?:the|that|as)\b"
    r"|\bwould do\b",
    r"^can (?:i|we) (?:get|have) (?:it|that|this)\b",
    r"\b(?:shorter|simpler|briefer|friendlier|clearer|warmer|softer|more (?:concise(?:ly)?|details?"
    r"|detailed|formal"
    r"|casual|specific|simply|brief(?:ly)?|examples?|friendly|precise|polite|natural)|less \w+|fewer \w+)\b",
    # A count of sentences or words that is not told of the reply at hand.
    r"^(?!(?:that|this|it|what|i|you)\b).*\b(?:one|single|two|three|\d+)[ -](?:[\w-]+,? ){0,4}?(?:sentences?"
    r"|lines?|paragraphs?)\b",
    r"\b(?:in|with|under|within|max|at most|no more than) (?:\w+,? ){0,4}?(?:sentences?|words?|lines?"
    r"|paragraphs?"
    r"|characters|plain english|simple (?:terms|words)|english|french|german|spanish|chinese"
    r"|bullet points)\b",
    r"^(?:one|two|three|\d+) (?:sentences?|words?|lines?|paragraphs?)(?: only| max)?,? please\b",
    r"^(?:but )?(?:without|no) (?:the |any |so many )?\w+(?: \w+)?(?:,? please)?$",
    r"(?<!what )\bi(?:'d| would)? (?:prefer|rather|wanted|asked (?:for|you to)|said|meant|expected"
    r"|want (?:it|you to|the|this)"
    r"|need (?:it|the answer|the result|this|that|you to))\b",
    r"\b(?:would|might) be (?:better|nicer|clearer)\b",
    r"\b(?:instead|rather than)\b",
    r"\b(?:it|that|this|you|they|there|the [\w ]{1,30}?) (?:should|must|needs? to|ha(?:s|ve) to|shouldn't"
    r"|mustn't)\b",
    r"\byou (?:forgot|failed|were supposed|neglected) to\b|\bi (?:said|asked)\b.*\bnot\b",
    r"(?:请)?(?:不要|别(?!的|人)|勿)|请用|请(?:简短|简单|简洁|直接|只|详细|改|按|尽量|写得)|用[一两三几\d]+(?:句|段|个|行)"
    r"|用(?:中文|英文|英语|法语|日语|公制)|改(?:成|为|得|一下)|换(?:成|个)|重写|应该|简短|简洁|缩短|精简"
    r"|(?:短|长|详细|简单|口语|正式|具体|友好|客气|清楚)(?:一)?[点些]|我(?:要|想要|说|问)的是|而不是|要用"
    r"|以后|下次|少[用写说]|多[用写说]|减半|不超过|控制在|少于|尽量|按照|统一|只要|只给|你忘了|漏了|^(?:请)?把.*(?:删|改|去|换|加)",
)

# Changes to the work itself. After a plain approval they are the next task; otherwise they correct.
CHANGE_REQUEST = _any(
    _LEAD + r"(?:add|include|fix|correct|change|replace|remove|drop|delete|move|rename|put|update)\b",
    r"删掉|去掉|加上|补充|改掉|修改|修正",
)

# Any other request; it is hint material only beside a complaint, otherwise it moves on.
OTHER_REQUEST = _any(
    _LEAD
    + r"(?:write|explain|tell|show|give|open|read|check|look|run|list|describe|summari[sz]e|translate|find"
    r"|create|help|compare|calculate|compute|draw|plan|search|send|start|do|try|answer|reply|let|merge"
    r"|call|go"
    r"|count|return|set|test|print|name|prove|solve|recommend|suggest|draft|book|order|remind|schedule"
    r"|generate|build|make|design|review|think|rank|pick|choose|define|sort|convert|organi[sz]e|prepare"
    r"|install|download|play)\b",
    r"^(?:now|next|by the way|btw|another|one more|moving on|on to)\b",
    r"^(?:请|帮|给|写|讲|说|推荐|列出|画|设计|制定|安排|提醒|告诉|看|查|列|算|翻译|总结|解释|介绍|接下来|下一|然后|现在|另外|顺便|继续|换个话题)|帮我",
)

QUESTION = _any(
    r"[?？]\s*$",
    r"^(?:and |so |ok |also )?(?:what|who|whom|whose|which|when|where|why|how|is|are|was|were|do|does|did"
    r"|can|could"
    r"|would|will|should|has|have)\b",
    r"吗$|呢$|什么|怎么|为什么|多少|几[个点]|哪[里个些]|谁",
)

POLITE_REQUEST = re.compile(
    r"^(?:\w+,? )?(?:can|could|would|will) (?:you|we|u)\b|\bplease\b|能不能|可不可以|可以.*吗"
)

DOUBT = _any(
    r"^(?:are|r) (?:you|u) sure\b|^really\b|^is (?:that|this|it) (?:right|correct|true)\b"
    r"|^确定吗|^真的吗|^你确定"
)

# A question about the reply itself is no new topic.
ABOUT_REPLY = re.compile(r"\bdid (?:you|it|that)\b|\bdo you always\b|^(?:ok|okay|well|yes),? but\b")

PAUSE = _any(
    r"^(?:let me|i'll|i will|i'm going to|hold on|wait|one (?:sec|moment)|brb|give me a)\b",
    r"我想想|等等|稍等|等一下|让我|我看看|考虑一下",
)

CONTRAST = re.compile(r"[,，;；]?\s*(?:\b(?:but|however|though|except)\b|但是?|不过|可是|只是)[,，]?\s*")

OPENING = re.compile(
    r"^(?:(?:thanks|thank you|thx|no|nope|nah|hmm|ok|okay|well|sorry|wrong"
    r"|谢谢|不对|不是|嗯)(?:[,，!！:：]\s*))+",
    re.I,
)

# Attempts to write the verdict into the text; they say nothing of the reply.
DICTATED = re.compile(
    r"\\?\bboxed\s*\{[^}]*\}|\[HINT_START\].*?(?:\[HINT_END\]|$)|\[HINT_END\]"
    r"|\b(?:score|verdict|reward|rating|grade|vote)\s*[:=]\s*[\"'+\-−\w.]+",
    re.I | re.DOTALL,
)
