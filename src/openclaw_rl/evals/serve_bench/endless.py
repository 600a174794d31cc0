"""The same model with replies that never end by themselves, so that every contender makes as many tokens.

A folder of links whose small files call the end-of-turn token something that no reader takes for one. The
token keeps its id, so prompts are the same tokens and the weights are the same file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openclaw_rl.policy.chat_template import ChatTemplate

_REWRITTEN = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


def make(model_folder: Path, folder: Path) -> Path:
    """Make the folder. Raises ValueError when its replies would end all the same."""
    template = ChatTemplate.load(model_folder)
    names = {
        name: f"<|not an end {end}|>"
        for end in sorted(template.stop_ids)
        if (name := template.tokenizer.id_to_token(end)) is not None
    }
    folder.mkdir(parents=True)
    for file in model_folder.iterdir():
        copy = folder / file.name
        if file.name in _REWRITTEN:
            content = json.loads(file.read_text(encoding="utf-8"))
            copy.write_text(json.dumps(_renamed(content, names), ensure_ascii=False), encoding="utf-8")
        elif file.suffix == ".jinja":
            copy.write_text(_replaced(file.read_text(encoding="utf-8"), names), encoding="utf-8")
        else:
            copy.symlink_to(file.resolve())
    if left := ChatTemplate.load(folder).stop_ids:
        raise ValueError(f"replies of {model_folder} end with the tokens {sorted(left)} whatever is done")
    return folder


def _renamed(content: Any, names: dict[str, str]) -> Any:
    """Without ids of end tokens, nor an end token by name; other texts under their new names."""
    if isinstance(content, dict):
        return {
            _replaced(key, names): None if key == "eos_token_id" else _renamed(value, names)
            for key, value in content.items()
            if key != "eos_token"
        }
    if isinstance(content, list):
        return [_renamed(value, names) for value in content]
    return _replaced(content, names) if isinstance(content, str) else content


def _replaced(text: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text
