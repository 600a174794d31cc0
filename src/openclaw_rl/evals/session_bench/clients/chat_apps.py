"""Chat applications in a browser: an SDK-like history, and helper requests around it.

Like Open WebUI (helpers "title", "tags", "follow_ups", "query" with the chat quoted in one user message),
like LibreChat ("titled", the title asked for in one user message), like LobeChat ("topic_zh",
"translate_zh"), and like agents that compact with a prompt at the end of the very history ("condense").
Options: those of `sdk`, and `retrieved` (documents around the newest message).
"""

from __future__ import annotations

from openclaw_rl.evals.session_bench.clients import sdk
from openclaw_rl.evals.session_bench.clients.post import Post, chat, transcript
from openclaw_rl.evals.session_bench.player import Asked

TASKS = {
    "title": (
        "Generate a concise, 3-5 word title with an emoji summarizing the chat history.",
        'JSON format: { "title": "your concise title here" }',
    ),
    "tags": (
        "Generate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more "
        "specific "
        "subtopic tags.",
        'JSON format: { "tags": ["tag1", "tag2", "tag3"] }',
    ),
    "follow_ups": (
        "Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in this "
        "conversation as a **user**, based on the chat history.",
        'JSON format: { "follow_ups": ["Question 1?", "Question 2?"] }',
    ),
    "query": (
        "Analyze the chat history to determine the necessity of generating search queries, in the given "
        "language.",
        'JSON format: { "queries": ["query1", "query2"] }',
    ),
}

RETRIEVED = """### Task:
Respond to the user query using the provided context, incorporating inline citations.

<context>
<source id="1" name="handbook.pdf">Section 4: thirty days.</source>
</context>

{question}
"""


def post(asked: Asked) -> Post:
    side, said = asked.step.side, transcript(asked.entries)
    if side in TASKS:
        task, form = TASKS[side]
        history = f"<chat_history>\n{said}\n</chat_history>"
        user = f"### Task:\n{task}\n### Output:\n{form}\n### Chat History:\n{history}"
        return chat(asked, [{"role": "user", "content": user}], stream=False)
    if side == "titled":
        user = f"{said}\n\nProvide a concise, 5-word-or-less title for the conversation, in title case."
        return chat(asked, [{"role": "user", "content": user}])
    if side == "topic_zh":
        system = "你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题，不需要包含标点符号"
        return chat(asked, [{"role": "system", "content": system}, {"role": "user", "content": said}])
    if side == "translate_zh":
        system = "你是一名擅长翻译的助理，你需要将输入的语言翻译为目标语言"
        user = f"请将以下内容 {said.splitlines()[-1]}，翻译为 en-US"
        return chat(asked, [{"role": "system", "content": system}, {"role": "user", "content": user}])
    if side == "condense":
        prompt = (
            "Your task is to create a detailed summary of the conversation so far, paying close attention "
            "to the "
            "user's explicit requests and your previous actions. Answer with the summary only; do not use "
            "tools."
        )
        messages = sdk.opening(asked.options) + sdk.history(asked.entries[:-1], asked.options)
        return chat(asked, [*messages, {"role": "user", "content": prompt}])
    made = sdk.post(asked)
    if asked.options.get("retrieved"):
        newest = made.body["messages"][-1]
        newest["content"] = RETRIEVED.format(question=newest["content"])
    return made
