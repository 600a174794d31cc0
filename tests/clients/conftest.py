"""One server and one judge, as processes, for all clients; the model is tiny and of random weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("embedded", "processes")]

from running_processes import START_SECONDS, House, eventually
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model

from openclaw_rl.policy.chat_template import ChatTemplate


def make_brief_model(folder: Path) -> Path:
    """A tiny model with room for an agent's prompts, whose free replies soon come to their end."""
    make_tiny_model(folder, context=32_768)
    weights = load_file(folder / "model.safetensors")
    # The embeddings are tied: a longer row for the end token means a larger logit, often the largest.
    weights["model.embed_tokens.weight"][list(ChatTemplate.load(folder).stop_ids)] *= 4
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("clients")
    with House(folder, make_brief_model(folder / "tiny")) as opened:
        opened.start("up", "learn.enabled=false", "engine.cache_tokens=0")
        opened.wait_until_ready()
        eventually(lambda: "judge" in opened.store.reports(), START_SECONDS)
        yield opened
