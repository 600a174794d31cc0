"""The model: token ids of many sequences in, logits at chosen positions out.

Loads any causal language model that transformers knows and whose attention it lets us compute, and lets
an adapter be chosen for each forward pass. The same forward pass samples, scores, teaches and trains, so
their log-probs agree. Knows no text and no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.attention import (
    IMPLEMENTATION,
    Attention,
    PackedAttention,
    UnsupportedModelError,
)


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

        Raises UnsupportedModelError when the model cannot be run by packed tokens.
        """
        disable_progress_bar()
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=IMPLEMENTATION)
        model = model.to(device).eval().requires_grad_(trainable)
        context_length = int(getattr(config.get_text_config(), "max_position_embeddings", None) or 4096)
        network = cls(model, context_length, adapter_targets)
        network.check_packing()
        return network

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def logits(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        keep: torch.Tensor,
        adapter: Adapter | None = None,
    ) -> torch.Tensor:
        """One forward pass.

        `token_ids` and `positions` are int64 [tokens]; `keep` is int64 [kept], the tokens whose logits
        are wanted. Returns [kept, vocabulary] in the model's dtype. Only kept positions go through the
        vocabulary projection.
        """
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

    def packed_logits(
        self, sequences: Sequence[Sequence[int]], keep: torch.Tensor, adapter: Adapter | None = None
    ) -> torch.Tensor:
        """Logits for whole sequences laid end to end; `keep` indexes the concatenation."""
        lengths = [len(sequence) for sequence in sequences]
        token_ids = torch.tensor([token for sequence in sequences for token in sequence], device=self.device)
        positions = torch.cat([torch.arange(length, device=self.device) for length in lengths])
        return self.logits(token_ids, positions, PackedAttention(lengths), keep.to(self.device), adapter)

    @torch.no_grad()
    def check_packing(self) -> None:
        """Raise UnsupportedModelError unless a sequence gives the same logits alone and packed.

        Models that carry state outside attention (recurrent layers, convolutions) would mix sequences.
        """
        vocabulary = self.model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        first = [(7 * step + 3) % vocabulary for step in range(12)]
        second = [(11 * step + 5) % vocabulary for step in range(9)]
        try:
            alone = self.packed_logits([second], torch.tensor([len(second) - 1]))
            packed = self.packed_logits([first, second], torch.tensor([len(first) + len(second) - 1]))
        except TypeError as error:
            raise UnsupportedModelError(
                f"this model's attention cannot be replaced by ours: {error}"
            ) from error
        difference = (alone.float().log_softmax(-1) - packed.float().log_softmax(-1)).abs().max().item()
        if not difference < 0.25:
            raise UnsupportedModelError(
                f"this model mixes sequences that are packed together (by {difference:.2f} in log-probs): "
                f"only pure attention models run here"
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
