"""Our own step on the work, in a process of its own, so that its memory is what the system says.

`python -m openclaw_rl.evals.update_bench.ours WORK METHOD` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from openclaw_rl.config import LearnSettings, Method
from openclaw_rl.evals.update_bench import limit
from openclaw_rl.evals.update_bench.memory import forget_peak, now_bytes, peak_bytes
from openclaw_rl.evals.update_bench.work import HINT, QUESTION, Reply, Work
from openclaw_rl.learn.batch import packed, student
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.model import Judgement, NextState, Sample, Sampling, Score, Turn, TurnKind, TurnState, Vote
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.network import Network


def measure(work: Work, method: Method) -> dict[str, object]:
    """Seconds of each step and of its parts, memory in bytes, and the seconds of the products alone."""
    torch.set_num_threads(work.threads)
    folder = Path(work.model_folder)
    settings = LearnSettings(
        method=method,
        learning_rate=work.learning_rate,
        tokens_per_pass=work.tokens_per_pass,
        lora_rank=work.lora_rank,
        lora_alpha=work.lora_alpha,
        lora_targets=tuple(work.lora_targets),
    )
    network = Network.load(
        folder,
        dtype=model_files.choose_dtype(work.dtype, torch.device("cpu")),
        device=torch.device("cpu"),
        adapter_targets=settings.lora_targets,
    )
    trainer = Trainer(network, model_files.load_template(folder), settings)
    samples = [_sample(number, reply) for number, reply in enumerate(work.replies)]
    forget_peak()
    loaded = now_bytes()
    seconds, parts = [], []
    for _ in range(work.steps):
        started = time.perf_counter()
        metrics = trainer.step(samples)
        seconds.append(time.perf_counter() - started)
        parts.append(
            {name.removeprefix("seconds_"): value for name, value in metrics.items() if "seconds_" in name}
        )
    peak = peak_bytes()
    groups = list(packed([student(n, sample) for n, sample in enumerate(samples)], settings.tokens_per_pass))
    passes = [(sum(part.length for part in group.parts), sum(group.lengths)) for group in groups]
    return {
        "seconds": seconds,
        "parts": parts,
        "loaded_bytes": loaded,
        "peak_bytes": peak,
        "limit_seconds": [limit.seconds(network, passes) for _ in range(work.steps)],
    }


def _sample(number: int, reply: Reply) -> Sample:
    turn = Turn(
        id=f"turn_{number}",
        session_id="s",
        kind=TurnKind.MAIN,
        state=TurnState.WAITING_UPDATE,
        model="m",
        policy_version=0,
        messages=({"role": "user", "content": QUESTION},),
        reply={"role": "assistant", "content": ""},
        prompt_ids=reply.prompt_ids,
        response_ids=reply.response_ids,
        logprobs=(-2.0,) * len(reply.response_ids),
        sampling=Sampling(),
        finish_reason="stop",
        created_at=0.0,
        finished_at=0.0,
        conversation_hash=str(number),
    )
    score = cast(Score, reply.score)
    votes = (Vote("directive", 1, hint=HINT),)
    judgement = Judgement(f"judge_{number}", turn.id, f"next_{number}", "bench", score, HINT, votes, 0.0)
    return Sample(turn, judgement, NextState(f"next_{number}", turn.id, "conversation", (), 0.0))


def main(arguments: Sequence[str]) -> None:
    work, method = Work.read(Path(arguments[0])), cast(Method, arguments[1])
    print(json.dumps(measure(work, method)))


if __name__ == "__main__":
    main(sys.argv[1:])
