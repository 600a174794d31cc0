"""Samples laid out as tokens: what is fed to the network, and which logits are wanted.

Prompt and response ids are the stored ones, never tokenised again. The only prompt that is rendered
here is the teacher's, which sees the hint. Knows no tensors of a model and no loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from openclaw_rl.model import Message, Sample
from openclaw_rl.policy.chat_template import ChatTemplate, text_of


@dataclass(frozen=True, slots=True)
class Scored:
    """A prompt with the reply whose tokens are to be scored. `index` is the sample's place in its batch."""

    index: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    temperature: float

    @property
    def length(self) -> int:
        # The last token predicts nothing that is scored, so it need not be computed.
        return len(self.prompt_ids) + len(self.response_ids) - 1

    @property
    def token_ids(self) -> tuple[int, ...]:
        return (self.prompt_ids + self.response_ids)[:-1]


@dataclass(frozen=True, slots=True)
class Packed:
    """Several `Scored` end to end, as one forward pass wants them."""

    parts: tuple[Scored, ...]

    @property
    def sequences(self) -> list[tuple[int, ...]]:
        return [part.token_ids for part in self.parts]

    @property
    def lengths(self) -> list[int]:
        """Response tokens of each part."""
        return [len(part.response_ids) for part in self.parts]

    def keep(self) -> torch.Tensor:
        """int64 [response tokens]: the positions whose logits predict a response token."""
        spans, start = [], 0
        for part in self.parts:
            spans.append(torch.arange(start + len(part.prompt_ids) - 1, start + part.length))
            start += part.length
        return torch.cat(spans)

    def targets(self) -> torch.Tensor:
        """int64 [response tokens]: the tokens that were sampled."""
        return torch.tensor([token for part in self.parts for token in part.response_ids])

    def temperatures(self) -> torch.Tensor:
        """float32 [response tokens]."""
        return self.spread([part.temperature for part in self.parts])

    def samples(self) -> torch.Tensor:
        """int64 [response tokens]: the sample that each token belongs to."""
        return self.spread([part.index for part in self.parts])

    def spread(self, values: Sequence[float] | Sequence[int] | Sequence[bool]) -> torch.Tensor:
        """One value for each part, repeated for each of its response tokens."""
        return torch.tensor(values).repeat_interleave(torch.tensor(self.lengths))


def student(index: int, sample: Sample) -> Scored:
    """The turn as it was sampled."""
    turn = sample.turn
    return Scored(index, turn.prompt_ids, turn.response_ids, turn.sampling.temperature)


def teacher(index: int, sample: Sample, hint: str, template: ChatTemplate) -> Scored:
    """The same reply after a prompt whose last user message carries the hint."""
    turn = sample.turn
    prompt_ids = template.prompt_ids(with_hint(turn.messages, hint), turn.tools)
    return Scored(index, prompt_ids, turn.response_ids, turn.sampling.temperature)


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """The messages with the hint added to the last user message, or to the last one if none is the user's.

    Inside the message, before templating, so that the model reads it as the user's words.
    """
    hinted = list(messages)
    users = [place for place, message in enumerate(hinted) if message["role"] == "user"]
    place = users[-1] if users else len(hinted) - 1
    content = f"{text_of(hinted[place].get('content'))}\n\n{hint}"
    hinted[place] = {**hinted[place], "content": content}
    return hinted


def packed(parts: Sequence[Scored], tokens_per_pass: int) -> Iterator[Packed]:
    """Group parts into passes of at most `tokens_per_pass` tokens; one longer part goes alone."""
    group: list[Scored] = []
    for part in parts:
        if group and sum(other.length for other in group) + part.length > tokens_per_pass:
            yield Packed(tuple(group))
            group = []
        group.append(part)
    if group:
        yield Packed(tuple(group))
