"""From messages to prompt token ids, by the model's own chat template.

One tokenizer object serves, judges and trains, so a prompt is the same ids everywhere. Works from a
model folder's `tokenizer.json` and template alone: no PyTorch, no transformers. Knows no engine.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from openclaw_rl.model import Message, Tool
from openclaw_rl.policy.detokenizer import Detokenizer
from openclaw_rl.policy.dialects import MISTRAL, PLAIN, dialect_of
from openclaw_rl.policy.message_forms import (
    ChatTemplateError,
    accommodations,
    plain,
    spell_out_tools,
    text_of,
    to_json,
    with_short_call_ids,
    with_whole_schemas,
)
from openclaw_rl.policy.reply import END_THINK, THINK

PIECE = 256 * 1024
"""Characters encoded at once when a text may be far longer than a model can read."""

_THOUGHT_MARKS = frozenset({THINK, END_THINK})

__all__ = ["ChatTemplate", "ChatTemplateError", "text_of"]

log = logging.getLogger(__name__)


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
        self._special_tokens = special_tokens
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._template = environment.from_string(template)
        self.has_tools_branch = "tools" in find_undeclared_variables(environment.parse(template))
        self.dialect = dialect_of(template, offers_tools=self.has_tools_branch)
        self.thinks = THINK in template
        """Whether the template knows thoughts."""
        self.names_calls_first = "[ARGS]" in template
        """Of Mistral's two forms the newer: a call's name, then its arguments."""
        if self.dialect is PLAIN:
            log.warning(
                "the model's chat template offers tools in a form that is not known here; calls are "
                "recognised when they are JSON, alone or in <tool_call> tags"
            )
        self._special_ids = _special_ids(tokenizer)
        self._call_marks = {self.dialect.opening, self.dialect.closing or "", *self.dialect.markers}
        # Those with which no reply is written: where they stand in a prompt, the template put them.
        boundaries = sorted(
            self._special_ids.keys() - self._call_marks - _THOUGHT_MARKS, key=len, reverse=True
        )
        self._boundary = re.compile("|".join(map(re.escape, boundaries))) if boundaries else None

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
        calls with string arguments. Where the template refuses messages or tools as they are (two users in
        a row, calls made together, a late system message, a schema without properties), what says the same
        in a form that it accepts is rendered. Raises ChatTemplateError when it refuses that too.
        """
        plain_messages = [self._defused(plain(message)) for message in messages]
        tools = [self._defused(tool) for tool in tools]
        if not self.has_tools_branch:
            plain_messages = spell_out_tools(plain_messages, tools)
        elif self.dialect is MISTRAL:
            plain_messages = with_short_call_ids(plain_messages)
        refusals: list[Exception] = []
        forms_of_tools = [tools]
        if self.has_tools_branch and (whole := with_whole_schemas(tools)) != tools:
            forms_of_tools.append(whole)
        for offered, accommodated in product(forms_of_tools, accommodations(plain_messages)):
            try:
                return self._template.render(
                    messages=accommodated,
                    tools=offered or None,
                    add_generation_prompt=True,
                    **self._special_tokens,
                )
            except (TemplateError, TypeError, KeyError, ValueError) as error:
                refusals.append(error)
        raise ChatTemplateError(
            f"the model's chat template refuses these messages: {refusals[0]}"
        ) from refusals[0]

    def _defused(self, said: Any) -> Any:
        """A message or tool with the special tokens in all its texts taken apart.

        Words, arguments and descriptions come from anyone, and must not forge another message.
        """
        if isinstance(said, str):
            return said if self._boundary is None else self._boundary.sub(_taken_apart, said)
        if isinstance(said, dict):
            return {name: self._defused(value) for name, value in said.items()}
        if isinstance(said, list | tuple):
            return [self._defused(value) for value in said]
        return said

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """Token ids of `render`, special tokens read as such and none added."""
        return tuple(self.tokenizer.encode(self.render(messages, tools), add_special_tokens=False).ids)

    def encode(self, prompt: str, most: int) -> tuple[tuple[int, ...], bool]:
        """Token ids of a rendered prompt, and True; or, when there are more than `most`, perhaps False.

        False goes with the ids of the beginning alone: a text of many megabytes is not encoded whole only
        to be refused.
        """
        if len(prompt) > PIECE:
            begun: list[int] = []
            for start in range(0, len(prompt), PIECE):
                piece = prompt[start : start + PIECE]
                begun += self.tokenizer.encode(piece, add_special_tokens=False).ids
                # A cut may split a token in two, or in pieces of it.
                if len(begun) > most + 16 * (1 + start // PIECE):
                    return tuple(begun), start + PIECE >= len(prompt)
        return tuple(self.tokenizer.encode(prompt, add_special_tokens=False).ids), True

    def detokenizer(self, stop: Sequence[str] = (), *, with_calls: bool = False) -> Detokenizer:
        """For one reply. Special tokens are hidden, but for those that mark thoughts and, asked, calls."""
        shown = _THOUGHT_MARKS | self._call_marks if with_calls else _THOUGHT_MARKS
        hidden = frozenset(token for text, token in self._special_ids.items() if text not in shown)
        return Detokenizer(self.tokenizer, stop, hidden)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: token_id for token_id, token in added.items() if token.special}


def _taken_apart(special: re.Match[str]) -> str:
    return f"{special[0][:1]} {special[0][1:]}"


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
