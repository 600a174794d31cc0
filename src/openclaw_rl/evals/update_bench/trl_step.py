"""TRL's GRPO step on the work. Run by the Python of an environment that has TRL and nothing of ours.

`python trl_step.py WORK` prints one line of JSON. Its trainer is given the replies instead of sampling
them, and takes the step itself: forward, loss, backward, clipping and optimiser.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import trl
from datasets import Dataset
from memory import forget_peak, peak_bytes  # type: ignore[import-not-found]  # beside this script
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    work = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(work["threads"])
    replies = work["replies"]
    folder = work["model_folder"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, work["dtype"]))
    with tempfile.TemporaryDirectory() as output:
        trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trl.GRPOConfig(
                output_dir=output,
                use_cpu=True,
                bf16=False,
                report_to=[],
                per_device_train_batch_size=len(replies),
                num_generations=len(replies),
                gradient_checkpointing=False,
                learning_rate=work["learning_rate"],
                beta=0.0,
                max_steps=1,
            ),
            train_dataset=Dataset.from_dict({"prompt": ["unused"] * len(replies)}),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=work["lora_rank"],
                lora_alpha=work["lora_alpha"],
                target_modules=work["lora_targets"],
                task_type="CAUSAL_LM",
            ),
        )
        trainer.create_optimizer()
        inputs = {
            "prompt_ids": torch.tensor([reply["prompt_ids"] for reply in replies]),
            "completion_ids": torch.tensor([reply["response_ids"] for reply in replies]),
            "advantages": torch.tensor([float(reply["score"]) for reply in replies]),
            "num_items_in_batch": torch.tensor(sum(len(reply["response_ids"]) for reply in replies)),
        }
        for part in ("prompt", "completion"):
            inputs[f"{part}_mask"] = torch.ones_like(inputs[f"{part}_ids"])
        trainer.current_gradient_accumulation_steps = 1
        seconds = []
        forget_peak()
        trainer.model.train()
        for _ in range(work["steps"]):
            started = time.perf_counter()
            loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes(), "version": trl.__version__}))


if __name__ == "__main__":
    main()
