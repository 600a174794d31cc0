"""From messages to prompt token ids, by the model's own chat template.

One tokenizer object serves, judges and trains, so a prompt is the same ids everywhere. Works from a
model folder's `tokenizer.json` and template alone: no PyTorch, no transformers. Knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from openclaw_rl.model import Message, Tool

TOOLS_PREAMBLE = """You can call these tools. To call one, answer with a JSON object inside tags:
<tool_call>
{"name": "<tool name>", "arguments": {<arguments as JSON>}}
</tool_call>

<tools>
%s
</tools>"""


class ChatTemplateError(ValueError):
    """The model's template refuses these messages; `str(error)` says why in its own words."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training tools; to a prompt it is its content."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A model's tokenizer together with its chat template and end-of-turn tokens."""

    def __init__(
        self, tokenizer: Tokenizer, template: str, special_tokens: dict[str, str], stop_ids: Sequence[int]
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_ids = frozenset(stop_ids)
        self.has_tools_branch = "tools" in template
        self._special_tokens = special_tokens
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._template = environment.from_string(template)

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read a model folder: tokenizer.json, tokenizer_config.json, and the template beside or in it.

        Raises FileNotFoundError without tokenizer.json and ValueError without a chat template.
        """
        tokenizer_file = folder / "tokenizer.json"
        if not tokenizer_file.exists():
            raise FileNotFoundError(f"{folder} has no tokenizer.json")
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
        # Some files keep the settings of a training run; a prompt is never cut or padded.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        special_tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name in ("bos_token", "eos_token", "pad_token", "unk_token")
            if (value := config.get(name)) is not None
        }
        return cls(
            tokenizer,
            _find_template(folder, config),
            special_tokens,
            _stop_ids(folder, tokenizer, special_tokens),
        )

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """The prompt text that asks for the next assistant message.

        Accepts what OpenAI's clients send: `developer` messages, null content, content parts and tool
        calls with string arguments. Raises ChatTemplateError when the template refuses the messages.
        """
        plain = [_plain(message) for message in messages]
        if not self.has_tools_branch:
            plain = _spell_out_tools(plain, tools)
        try:
            return self._template.render(
                messages=plain,
                tools=list(tools) or None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise ChatTemplateError(f"the model's chat template refuses these messages: {error}") from error

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """Token ids of `render`, special tokens read as such and none added."""
        return tuple(self.tokenizer.encode(self.render(messages, tools), add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text


def text_of(content: Any) -> str:
    """The text of a message's content: a string, null, or a list of parts whose texts are joined.

    Raises ChatTemplateError for parts that hold no text (images, audio).
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
        else:
            raise ChatTemplateError(
                f"this model reads text only, not content parts of type {part.get('type')!r}"
            )
    return "\n".join(texts)


def _plain(message: Message) -> Message:
    """The form that templates expect: known role, string content, arguments as an object."""
    role = "system" if message["role"] == "developer" else message["role"]
    plain = {**message, "role": role, "content": text_of(message.get("content"))}
    if not message.get("tool_calls"):
        plain.pop("tool_calls", None)
        return plain
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function") or {}
        arguments = _as_object(function.get("arguments"))
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**plain, "tool_calls": calls}


def _as_object(arguments: Any) -> Any:
    """Arguments as the object that templates walk through; text that is none is kept as `unparsed`."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):  # broken, or with a number or a nesting beyond Python's limits
        parsed = arguments
    if parsed is None:
        return {}
    return parsed if isinstance(parsed, dict) else {"unparsed": arguments}


def _spell_out_tools(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    """For a template that knows no tools: definitions, calls and results written into plain messages."""
    spelled: list[Message] = []
    if tools:
        preamble = TOOLS_PREAMBLE % "\n".join(_to_json(tool) for tool in tools)
        if messages and messages[0]["role"] == "system":
            spelled.append({"role": "system", "content": f"{messages[0]['content']}\n\n{preamble}"})
            messages = messages[1:]
        else:
            spelled.append({"role": "system", "content": preamble})
    for message in messages:
        if message["role"] == "tool":
            result = f"<tool_response>\n{message['content']}\n</tool_response>"
            spelled.append({"role": "user", "content": result})
        elif message.get("tool_calls"):
            calls = "\n".join(_spell_out_call(call["function"]) for call in message["tool_calls"])
            spelled.append({"role": message["role"], "content": f"{message['content']}\n{calls}".strip()})
        else:
            spelled.append(message)
    return spelled


def _spell_out_call(function: dict[str, Any]) -> str:
    call = {"name": function.get("name"), "arguments": function.get("arguments")}
    return f"<tool_call>\n{_to_json(call)}\n</tool_call>"


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    # Jinja's own filter escapes HTML and sorts keys; models were trained on neither.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _find_template(folder: Path, config: dict[str, Any]) -> str:
    beside = folder / "chat_template.jinja"
    if beside.exists():
        return beside.read_text(encoding="utf-8")
    inside = config.get("chat_template")
    if isinstance(inside, list):
        inside = next((entry["template"] for entry in inside if entry.get("name") == "default"), None)
    if not isinstance(inside, str):
        raise ValueError(f"{folder} has no chat template; OpenClaw-RL needs an instruction-tuned model")
    return inside


def _stop_ids(folder: Path, tokenizer: Tokenizer, special_tokens: dict[str, str]) -> list[int]:
    """Every token that ends a turn: of the generation config, the model config and the tokenizer."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        found.extend(value if isinstance(value, list) else [] if value is None else [value])
    for token in (special_tokens.get("eos_token"), "<|im_end|>", "<|eot_id|>", "<end_of_turn>"):
        token_id = tokenizer.token_to_id(token) if token else None
        if token_id is not None:
            found.append(token_id)
    return found
