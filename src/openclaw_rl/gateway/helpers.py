"""Helper calls of clients other than OpenClaw, by their texts: titles, tags, summaries, probes.

First the openings of prompts that are known; then what all such prompts have in common. A helper that is
taken for a main turn does little harm while nothing follows it, a person's turn taken for a helper is lost:
so the common rules want two signs. Knows no session and no store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.model import Message
from openclaw_rl.policy.chat_template import text_of
from openclaw_rl.wrappings import stamp_of

_SYSTEM_PROMPTS = {
    "Analyze if this message indicates a new conversation topic": "topic",  # Claude Code
    "Summarize this coding conversation": "title",
    "Extract any file paths that this command reads or modifies": "file paths",
    # Aider
    "You are an expert software engineer that generates concise, one-line Git commit messages": "commit",
    "你是一名擅长会话的助理": "title",  # LobeChat
    "你是一名擅长翻译的助理": "translation",
    "You are the component that summarizes internal chat history": "summary",  # Gemini CLI
    "You are a title generator": "title",  # opencode
    "You are an AI conversation titles assistant": "title",  # big-AGI
    "You are a Personal Information Organizer": "memory",  # mem0
}
_LAST_PROMPTS = {
    # Claude Code, Cline and Roo
    "Your task is to create a detailed summary of the conversation so far": "summary",
    "You are performing a CONTEXT CHECKPOINT COMPACTION": "summary",  # Codex
    "Please write a 5-10 word title for the following conversation": "title",
    "*Briefly* summarize this partial conversation about programming": "summary",  # Aider
    "Distill the above chat messages into a single summary message": "summary",  # LangChain
    "Progressively summarize the lines of conversation provided": "summary",
    # Gemini CLI
    "Analyze *only* the content and structure of your immediately preceding response": "next speaker",
    "Please generate a four to five word title summarizing our conversation": "title",  # NextChat
    "Summarize the discussion briefly in 200 words or less to use as a prompt": "summary",
    "使用四到五个字直接返回这句话的简要主题": "title",
    "简要总结一下对话内容，用作后续的上下文提示": "summary",
    "[Pause your roleplay. Summarize": "summary",  # SillyTavern
}
_PROBES = ("quota",)
"""What Claude Code asks for one token, to see whether it may ask."""

_TASK = re.compile(
    r"\b(title|headline|tags?|topic|labels?|emoji|follow-?ups?|suggest\w*|quer(y|ies)|autocomplet\w*|"
    r"summar\w*|recap|condense|compact|rephrase)\b|标题|标签|主题|总结|概括|摘要",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"\b(conversation|chat|session|dialog(ue)?|discussion|thread|story|messages?)\b|会话|对话|聊天",
    re.IGNORECASE,
)
_OF_ALL = re.compile(
    r"\b(title|headline|tags|topic|summar\w*|recap|name|description)\b[^.\n]{0,40}"
    r"\b(this|our|the|above) (conversation|chat|discussion|dialogue|session|thread|story)\b"
    r"(?= so far|\s*[.,:;!?]|\s*$| (in|without|using) )"
    r"|(总结|概括|标题|主题|摘要)[^。\n]{0,20}(对话|会话|聊天)|(对话|会话|聊天)[^。\n]{0,20}(总结|概括|标题|主题|摘要)",
    re.IGNORECASE,
)
"""Something made of the whole conversation, and of no part or program that is called so."""
_INSISTENCE = re.compile(
    r"\b(without any (\w+|lead-in)|omit(ting)?|nothing (but|else)|(output|return|respond with|reply with|"
    r"answer with|give) only|only the (title|summary|name|recap)|"
    r"no (other|additional|extra|explanations?|punctuation|quotes|quotation|preamble|lead-in)|words? or less|"
    r"(at most|under|max\.?|maximum|to) \d+ (words?|characters?)|\d+-\d+ words?|\w+ to \w+ words?)\b"
    r"|不要(解释|标点|多余)|只返回|直接返回|字以内",
    re.IGNORECASE,
)
"""What the answer must be besides what was asked: programs read it, so their prompts insist."""
_INSISTS = 2
_TAGS = re.compile(r"<(chat_history|conversation|chat|history|messages|transcript)>", re.IGNORECASE)
_BY_USER = re.compile(r"^[^\w\n]{0,4}(user|human|用户)[^\w\n]{0,4}[:：]", re.IGNORECASE | re.MULTILINE)
_BY_ASSISTANT = re.compile(r"^[^\w\n]{0,4}(assistant|ai|助手)[^\w\n]{0,4}[:：]", re.IGNORECASE | re.MULTILINE)
_IMPERATIVE = re.compile(
    r"(generate|create|write|summari[sz]e|analy[sz]e|suggest|provide|give|name|label|condense|extract|"
    r"your task is to|please (generate|create|write|summari[sz]e|provide))\b|请|根据",
    re.IGNORECASE,
)
_SYSTEM = ("system", "developer")


def helper_call(messages: Sequence[Message], max_tokens: int | None, *, has_tools: bool) -> str | None:
    """Which helper call a request is, or None for one that may be a person's."""
    system = _first(messages, _SYSTEM)
    last = _text(messages[-1]) if messages and messages[-1]["role"] in ("user", *_SYSTEM) else ""
    for prompt, known in ((system, _SYSTEM_PROMPTS), (last, _LAST_PROMPTS)):
        for opening, kind in known.items():
            if prompt.startswith(opening):
                return kind
    if max_tokens == 1 and last in _PROBES:
        return "probe"
    if any(message["role"] == "assistant" for message in messages):
        is_helper = _is_order(last)
    else:
        is_helper = not has_tools and (_is_task(system) or _asks(_around_quoted(last)))
    return "task about a conversation" if is_helper else None


def _is_task(prompt: str) -> bool:
    """Whether a prompt begins by asking for something about a conversation; an agent's own says who it is."""
    opening = prompt[:_OPENING]
    return bool(_IMPERATIVE.match(opening)) and _asks(opening)


def _is_order(prompt: str) -> bool:
    """Whether a prompt at the end of a history wants something made of it, and minds the form twice."""
    opening = prompt[:_OPENING]
    if stamp_of(prompt) or not (_IMPERATIVE.match(opening.lstrip("[*# ")) and _OF_ALL.search(opening)):
        return False
    return len({match.group().lower() for match in _INSISTENCE.finditer(prompt[:_LONGEST])}) >= _INSISTS


def _around_quoted(text: str) -> str:
    """What a message says around a conversation between user and assistant that it quotes; else nothing."""
    tag = _TAGS.search(text)
    if tag:
        end = text.rfind(f"</{tag.group(1)}>")
        if "\n" in text[tag.end() : end].strip("\n") or text[tag.end() : tag.end() + 1] == "\n":
            return text[: tag.start()] + text[end:]
        return ""
    asked = _BY_USER.search(text)
    answers = [found.end() for found in _BY_ASSISTANT.finditer(text, asked.end())] if asked else []
    if asked is None or not answers:
        return ""
    return text[: asked.start()] + text[answers[-1] :].partition("\n\n")[2]


_OPENING = 300
"""Characters in which a prompt says what it is for."""
_LONGEST = 4000
"""Characters in which it says how the answer must look."""


def _asks(text: str) -> bool:
    return bool(_TASK.search(text) and _ABOUT.search(text))


def _first(messages: Sequence[Message], roles: tuple[str, ...]) -> str:
    return next((_text(message) for message in messages if message["role"] in roles), "")


def _text(message: Message) -> str:
    return text_of(message.get("content")).lstrip()
