"""The model: token ids of many sequences in, logits at chosen positions out.

Loads any causal language model that transformers knows and whose attention it lets us compute, and lets
an adapter be chosen for each forward pass. Models built like Llama are computed by `decoder`, the others
by transformers' modules. The same forward pass samples, scores, teaches and trains, so their log-probs
agree. Knows no text and no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.architecture import UnknownPartError, decoder_of
from openclaw_rl.policy.embedded.attention import (
    IMPLEMENTATION,
    Attention,
    PackedAttention,
    UnsupportedModelError,
)
from openclaw_rl.policy.embedded.decoder import Decoder, StackedAdapter

FLOAT32_TOLERANCE = 1e-3
"""How far any log-prob of `decoder` may be from transformers' in float32: rounding alone."""

HALF_PRECISION_TOLERANCE = 0.25
"""How far they may be on average in half precision, where the order of the same additions already makes
0.1 (SmolLM2-135M in bfloat16, where ours is 0.06 from float32 and theirs 0.1)."""

log = logging.getLogger(__name__)


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus the low-rank term of the current adapter (LoRA, arXiv 2106.09685)."""

    def __init__(self, base: nn.Linear, name: str, current: _Current) -> None:
        super().__init__()
        self.base = base
        self.name = name
        self._current = current

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.base(inputs)
        adapter = self._current.adapter
        factors = adapter.factors.get(self.name) if adapter is not None else None
        if adapter is None or factors is None:
            return output
        down, up = factors
        # Factors may be float32 masters that are being trained; the product is in the model's dtype.
        low_rank = linear(linear(inputs, down.to(inputs.dtype)), up.to(inputs.dtype))
        return torch.add(output, low_rank, alpha=adapter.scale)


class _Current:
    """Which adapter the layers add in this forward pass. One network belongs to one thread."""

    adapter: Adapter | None = None


class Network:
    """A loaded model. Not safe for concurrent forward passes."""

    def __init__(self, model: nn.Module, context_length: int, adapter_targets: Sequence[str]) -> None:
        self.model = model
        self.context_length = context_length
        self._current = _Current()
        self.decoder = _decoder(model)
        self.adapted = self._insert_adapters(adapter_targets)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        adapter_targets: Sequence[str],
        trainable: bool = False,
    ) -> Network:
        """Load a model folder. With `trainable` every weight takes gradients (full fine-tuning).

        Nothing in the folder is executed: neither pickled weights nor a model's own code.
        Raises UnsupportedModelError when the model cannot be run by packed tokens.
        """
        disable_progress_bar()
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=IMPLEMENTATION,
            use_safetensors=True,
            trust_remote_code=False,
        )
        model = model.to(device).eval().requires_grad_(trainable)
        context_length = int(getattr(config.get_text_config(), "max_position_embeddings", None) or 4096)
        network = cls(model, context_length, adapter_targets)
        network.check_packing()
        network.check_decoder()
        return network

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self.model.get_input_embeddings().num_embeddings)  # type: ignore[operator]

    def logits(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        keep: torch.Tensor,
        adapter: Adapter | StackedAdapter | None = None,
    ) -> torch.Tensor:
        """One forward pass. `adapter` may be one that this network has `prepared`.

        `token_ids` and `positions` are int64 [tokens]; `keep` is int64 [kept], the tokens whose logits
        are wanted. Returns [kept, vocabulary] in the model's dtype. Only kept positions go through the
        vocabulary projection.
        """
        return self.project(self.hidden(token_ids, positions, attention, keep, adapter))

    def hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        keep: torch.Tensor,
        adapter: Adapter | StackedAdapter | None = None,
    ) -> torch.Tensor:
        """`logits` before the vocabulary projection: what `project` turns into them, [kept, width].

        Of a model that transformers computes it is the logits themselves, since some change them after
        the projection.
        """
        if self.decoder is None:
            if isinstance(adapter, StackedAdapter):
                raise TypeError("this adapter was prepared for another network")
            return self._by_transformers(token_ids, positions, attention, keep, adapter)
        stacked = self.decoder.stacked(adapter) if isinstance(adapter, Adapter) else adapter
        return self.decoder.hidden(token_ids, positions, attention, keep, stacked)

    def project(self, hidden: torch.Tensor) -> torch.Tensor:
        """From what `hidden` gives to logits: [kept, vocabulary]."""
        if self.decoder is None:
            return hidden
        return self.decoder.head(hidden, None)

    @property
    def frozen_head(self) -> torch.Tensor | None:
        """[vocabulary, width]: what `project` multiplies by; None if it does more, or if it is trained."""
        return None if self.decoder is None else self.decoder.head.frozen_weight

    def packed_logits(
        self,
        sequences: Sequence[Sequence[int]],
        keep: torch.Tensor,
        adapter: Adapter | StackedAdapter | None = None,
    ) -> torch.Tensor:
        """Logits for whole sequences laid end to end; `keep` indexes the concatenation."""
        return self.project(self.packed_hidden(sequences, keep, adapter))

    def packed_hidden(
        self,
        sequences: Sequence[Sequence[int]],
        keep: torch.Tensor,
        adapter: Adapter | StackedAdapter | None = None,
    ) -> torch.Tensor:
        """`hidden` for whole sequences laid end to end; `keep` indexes the concatenation."""
        return self.hidden(*self._end_to_end(sequences), keep.to(self.device), adapter)

    def prepared(self, adapter: Adapter) -> Adapter | StackedAdapter:
        """The adapter as serving wants it: fixed, in the model's dtype and place, laid out once."""
        moved = adapter.to(self.dtype, self.device)
        return moved if self.decoder is None else self.decoder.stacked(moved).for_serving()

    def prepack(self) -> None:
        """Make passes without gradients faster, for the memory of another copy of the weights."""
        if self.decoder is not None:
            self.decoder.prepack()

    @torch.no_grad()
    def check_packing(self) -> None:
        """Raise UnsupportedModelError unless a sequence gives the same logits alone and packed.

        Models that carry state outside attention (recurrent layers, convolutions) would mix sequences.
        """
        first, second = self._probes()
        last = torch.tensor([len(second) - 1], device=self.device)
        try:
            alone = self._by_transformers(*self._end_to_end([second]), last)
            packed = self._by_transformers(*self._end_to_end([first, second]), last + len(first))
        except TypeError as error:
            raise UnsupportedModelError(
                f"this model's attention cannot be replaced by ours: {error}"
            ) from error
        difference = _differences(alone, packed).max().item()
        if not difference < 0.25:
            raise UnsupportedModelError(
                f"this model mixes sequences that are packed together (by {difference:.2f} in log-probs): "
                f"only pure attention models run here"
            )

    @torch.no_grad()
    def check_decoder(self) -> None:
        """Give `decoder` up unless it computes what transformers computes."""
        if self.decoder is None:
            return
        keep = torch.arange(sum(map(len, self._probes())), device=self.device)
        theirs = self._by_transformers(*self._end_to_end(self._probes()), keep)
        differences = _differences(self.packed_logits(self._probes(), keep), theirs)
        if self.dtype == torch.float32:
            agrees = differences.max().item() < FLOAT32_TOLERANCE
        else:
            agrees = differences.mean().item() < HALF_PRECISION_TOLERANCE
        if not agrees:
            self._give_up_decoder(f"its log-probs differ by up to {differences.max().item():.4f}")
        elif unknown := self.adapted.keys() - self.decoder.layer_names():
            self._give_up_decoder(f"it cannot adapt {', '.join(sorted(unknown))}")

    def _give_up_decoder(self, reason: str) -> None:
        log.warning("our own decoder is not used for this model, which is slower: %s", reason)
        self.decoder = None

    def _by_transformers(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        keep: torch.Tensor,
        adapter: Adapter | None = None,
    ) -> torch.Tensor:
        with self._using(adapter):
            output = self.model(
                input_ids=token_ids.unsqueeze(0),
                position_ids=positions.unsqueeze(0),
                use_cache=False,
                logits_to_keep=keep,
                attention=attention,
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    def _end_to_end(
        self, sequences: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor, PackedAttention]:
        """Token ids, positions and attention of sequences that lie end to end."""
        lengths = [len(sequence) for sequence in sequences]
        token_ids = torch.tensor([token for sequence in sequences for token in sequence], device=self.device)
        positions = torch.cat([torch.arange(length, device=self.device) for length in lengths])
        return token_ids, positions, PackedAttention(lengths)

    def _probes(self) -> tuple[list[int], list[int]]:
        """Two sequences to test a network with."""
        return (
            [(7 * step + 3) % self.vocabulary for step in range(12)],
            [(11 * step + 5) % self.vocabulary for step in range(9)],
        )

    @contextmanager
    def _using(self, adapter: Adapter | None) -> Iterator[None]:
        self._current.adapter = adapter
        try:
            yield
        finally:
            self._current.adapter = None

    def _insert_adapters(self, targets: Sequence[str]) -> dict[str, nn.Linear]:
        """Wrap the target layers; returns them by their full name."""
        found: dict[str, nn.Linear] = {}
        for name, module in list(self.model.named_modules()):
            if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets:
                parent_name, _, own_name = name.rpartition(".")
                parent = self.model.get_submodule(parent_name)
                setattr(parent, own_name, AdaptedLinear(module, name, self._current))
                found[name] = module
        if targets and not found:
            raise UnsupportedModelError(
                f"no linear layer of this model is called {', '.join(targets)}; set learn.lora_targets"
            )
        return found


def _decoder(model: nn.Module) -> Decoder | None:
    try:
        return decoder_of(model)
    except UnknownPartError as part:
        log.info("this model runs through transformers' modules: %s", part)
        return None


def _differences(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """How far log-probs are apart."""
    return (first.float().log_softmax(-1) - second.float().log_softmax(-1)).abs()
