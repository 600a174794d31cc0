"""Keys and values of the sequences that are being decoded, one row each.

Active sequences always fill the first rows, so that a decode step attends for all of them in one call.
Rows grow by doubling. Knows nothing of requests, versions or tokens; the scheduler keeps those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from openclaw_rl.policy.embedded import pages
from openclaw_rl.policy.embedded.attention import attend

_SMALLEST = 256


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one row in a forward pass: they follow `start` tokens that the row already holds."""

    row: int
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Saved:
    """Keys and values of one row of an arena.

    One tensor for all layers: with two for each of them, some thousand short rows that are kept would be a
    hundred thousand small objects.
    """

    numbers: torch.Tensor
    tokens: int
    shapes: tuple[tuple[int, int], ...]
    """(kv_heads, head_dim) of the first layer's keys, its values, the second layer's keys and so on."""

    def parts(self) -> Iterator[torch.Tensor]:
        """[kv_heads, tokens, head_dim] each, in the order of `shapes`."""
        at = 0
        for heads, width in self.shapes:
            end = at + heads * self.tokens * width
            yield self.numbers[at:end].view(heads, self.tokens, width)
            at = end


class Arena:
    """Storage of [rows, kv_heads, capacity, head_dim] keys and values for each layer, made on first use."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._in_use = 0
        self._capacity = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._shapes: tuple[tuple[int, int], ...] = ()  # all that is saved shares it

    @property
    def capacity(self) -> int:
        return self._capacity

    def reserve(self, tokens: int, rows: int) -> None:
        """Make room for `tokens` in every row, of which the first `rows` are or will be written to."""
        if tokens > self._capacity:
            capacity = max(_SMALLEST, self._capacity)
            while capacity < tokens:
                capacity *= 2
            for layer, (keys, values) in self._layers.items():
                self._layers[layer] = (self._grown(keys, capacity), self._grown(values, capacity))
            self._capacity = capacity
        self._in_use = max(self._in_use, rows)

    def release(self) -> None:
        """Give all memory back; only while no row is in use."""
        self._layers.clear()
        self._in_use = 0
        self._capacity = 0

    def write(
        self, layer: int, spans: Sequence[Span], key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values ([kv_heads, tokens, head_dim], spans end to end) and return the layer."""
        keys, values = self._stored(layer, key, value)
        at = 0
        for span in spans:
            keys[span.row, :, span.start : span.end] = key[:, at : at + span.length]
            values[span.row, :, span.start : span.end] = value[:, at : at + span.length]
            at += span.length
        return keys, values

    def write_one_each(
        self, layer: int, rows: torch.Tensor, positions: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `write` for one new token in each of several rows, in two calls instead of two for each row."""
        keys, values = self._stored(layer, key, value)
        keys[rows, :, positions] = key.transpose(0, 1)
        values[rows, :, positions] = value.transpose(0, 1)
        return keys, values

    def _stored(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's storage, made for keys and values of this kind on first use."""
        if layer not in self._layers:
            shape = (self._rows, key.shape[0], self._capacity)
            self._layers[layer] = (
                pages.zeros((*shape, key.shape[-1]), key),
                pages.zeros((*shape, value.shape[-1]), value),
            )
        return self._layers[layer]

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` of a row over another row."""
        for keys, values in self._layers.values():
            keys[target, :, :tokens] = keys[source, :, :tokens]
            values[target, :, :tokens] = values[source, :, :tokens]

    def copy_out(self, row: int, tokens: int) -> Saved:
        """The first `tokens` of a row, in memory of their own that is freed as one."""
        parts = [stored[row, :, :tokens] for _, layer in sorted(self._layers.items()) for stored in layer]
        shapes = tuple((part.shape[0], part.shape[2]) for part in parts)
        if shapes != self._shapes:
            self._shapes = shapes
        saved = Saved(pages.zeros((sum(part.numel() for part in parts),), parts[0]), tokens, self._shapes)
        for room, part in zip(saved.parts(), parts, strict=True):
            room.copy_(part)
        return saved

    def copy_in(self, row: int, saved: Saved, tokens: int) -> None:
        """Put back the first `tokens` of what `copy_out` gave."""
        parts = saved.parts()
        for layer, (key, value) in enumerate(zip(parts, parts, strict=True)):
            self.write(layer, [Span(row, 0, tokens)], key[:, :tokens], value[:, :tokens])

    def _grown(self, stored: torch.Tensor, capacity: int) -> torch.Tensor:
        larger = pages.zeros((*stored.shape[:2], capacity, stored.shape[-1]), stored)
        larger[: self._in_use, :, : self._capacity] = stored[: self._in_use]
        return larger


class CachedAttention:
    """Attention of a forward pass whose tokens continue rows of an arena. An `attention.Attention`.

    A pass is either one new token for each of several rows (decoding), or longer spans (prefill).
    """

    def __init__(self, arena: Arena, spans: Sequence[Span], device: torch.device) -> None:
        self._arena = arena
        self._spans = spans
        self._decoding = len(spans) > 1 and all(span.length == 1 for span in spans)
        self._longest = max(span.end for span in spans)
        arena.reserve(self._longest, max(span.row for span in spans) + 1)
        contiguous = [span.row for span in spans] == list(range(spans[0].row, spans[0].row + len(spans)))
        # One call for all rows reads every row up to the longest; worth it unless most of that is padding.
        padded = self._longest * len(spans) > 2 * sum(span.end for span in spans)
        self._together = self._decoding and contiguous and not padded
        if self._together:
            self._rows = torch.tensor([span.row for span in spans], device=device)
            self._positions = torch.tensor([span.start for span in spans], device=device)
            at = torch.arange(self._longest, device=device)
            self._seen = (at.unsqueeze(0) <= self._positions.unsqueeze(1))[:, None, None, :]

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        windowed = window is not None and window < self._longest
        if self._together and not windowed:
            keys, values = self._arena.write_one_each(layer, self._rows, self._positions, key, value)
            return self._decode_together(query, keys, values, scale)
        keys, values = self._arena.write(layer, self._spans, key, value)
        outputs, at = [], 0
        for span in self._spans:
            outputs.append(
                attend(
                    query[:, at : at + span.length],
                    keys[span.row, :, : span.end],
                    values[span.row, :, : span.end],
                    scale,
                    window,
                )
            )
            at += span.length
        return torch.cat(outputs, dim=1)

    def _decode_together(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
    ) -> torch.Tensor:
        heads, count, width = query.shape
        kv_heads = keys.shape[1]
        rows = slice(self._spans[0].row, self._spans[0].row + count)
        # The query heads that share a key head stand in for query positions, so keys are not repeated.
        grouped = query.transpose(0, 1).reshape(count, kv_heads, heads // kv_heads, width)
        output = scaled_dot_product_attention(
            grouped,
            keys[rows, :, : self._longest],
            values[rows, :, : self._longest],
            attn_mask=self._seen,
            scale=scale,
        )
        return output.reshape(count, heads, -1).transpose(0, 1)
