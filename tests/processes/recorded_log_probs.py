"""What a turn recorded, held against a plain forward pass of the model."""

from __future__ import annotations

from pathlib import Path

import torch

from openclaw_rl.model import Turn
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.sampler import chosen_log_probs


@torch.inference_mode()
def differences(turn: Turn, folder: Path, dtype: torch.dtype) -> torch.Tensor:
    """How far each recorded log-prob is from a forward pass over the whole reply: [tokens]."""
    network = Network.load(folder, dtype=dtype, device=torch.device("cpu"), adapter_targets=())
    sequence = (turn.prompt_ids + turn.response_ids)[:-1]
    keep = torch.arange(len(turn.prompt_ids) - 1, len(sequence))
    fresh = chosen_log_probs(
        network.packed_logits([sequence], keep),
        torch.tensor(turn.response_ids).unsqueeze(1),
        torch.full((len(turn.response_ids),), turn.sampling.temperature),
    )
    return (fresh.squeeze(1) - torch.tensor(turn.logprobs)).abs()
