"""`transformers` generate in a process of its own: prompts padded to one length and answered as one batch.

`python -m openclaw_rl.evals.serve_bench.generate SETUP` takes model_folder, dtype, device and threads as
JSON; then a line of JSON for each job. Nothing of ours computes here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from openclaw_rl.evals.serve_bench.measure import Pass
from openclaw_rl.evals.serve_bench.worker import answer


def main(arguments: Sequence[str]) -> None:
    setup = json.loads(arguments[0])
    torch.set_num_threads(setup["threads"])
    transformers.utils.logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(setup["model_folder"], padding_side="left")
    pad = tokenizer.pad_token_id or 0
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.convert_ids_to_tokens(pad)
    model = AutoModelForCausalLM.from_pretrained(
        setup["model_folder"], dtype=getattr(torch, setup["dtype"]), attn_implementation="sdpa"
    )
    model = model.to(setup["device"]).eval()
    model.generation_config.eos_token_id = None  # as many tokens as are asked for

    def do(asked: dict[str, Any]) -> dict[str, Any]:
        chats = [[{"role": "user", "content": text}] for text in asked["prompts"]]
        started = time.perf_counter()
        inputs = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(setup["device"])
        with torch.inference_mode():
            replies = model.generate(
                **inputs,
                do_sample=True,
                temperature=asked["temperature"],
                top_k=0,
                top_p=1.0,
                max_new_tokens=asked["tokens"],
                pad_token_id=pad,
            )
        new = replies[:, inputs["input_ids"].shape[1] :].cpu()
        return Pass(time.perf_counter() - started, new.numel()).to_json()

    answer({"version": transformers.__version__}, do)


if __name__ == "__main__":
    main(sys.argv[1:])
