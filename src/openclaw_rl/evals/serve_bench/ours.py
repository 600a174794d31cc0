"""Our engine bare, in a process of its own: no HTTP, no gateway, no store.

`python -m openclaw_rl.evals.serve_bench.ours SETTINGS VERSION` takes settings as JSON by dotted name and the
folder of an adapter; then a line of JSON for each job.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openclaw_rl import config
from openclaw_rl.evals.serve_bench.measure import Pass
from openclaw_rl.evals.serve_bench.worker import answer
from openclaw_rl.model import PolicyVersion, Sampling, VersionState
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.engine import EmbeddedEngine, EmbeddedGeneration

ADAPTED = 1
"""The version with the adapter; 0 is without."""


def main(arguments: Sequence[str]) -> None:
    settings, _ = config.load(None, json.loads(arguments[0]))
    folder = model_files.resolve(settings.model.name, print)
    template = model_files.load_template(folder)
    cores = CoreShare(settings.home, "server", settings.engine.threads)
    engine = EmbeddedEngine.load(settings, folder, template.stop_ids, cores)
    version = PolicyVersion(
        ADAPTED, 0, VersionState.CANDIDATE, str(Path(arguments[1]).absolute()), None, time.time()
    )
    asyncio.run(engine.publish(version, serve=False))

    def do(asked: dict[str, Any]) -> dict[str, Any]:
        prompts = [template.prompt_ids([{"role": "user", "content": text}]) for text in asked["prompts"]]
        sampling = Sampling(temperature=asked["temperature"], max_tokens=asked["tokens"])
        return asyncio.run(_answer_all(engine, prompts, sampling, asked["version"])).to_json()

    try:
        answer({}, do)
    finally:
        engine.shut_down()


async def _answer_all(
    engine: EmbeddedEngine, prompts: Sequence[tuple[int, ...]], sampling: Sampling, version: int
) -> Pass:
    started = time.perf_counter()
    running = [engine.generate(prompt, sampling, version) for prompt in prompts]
    arrivals = await asyncio.gather(*(_times(each) for each in running))
    return Pass.of(started, arrivals, sum(map(len, arrivals)))


async def _times(generation: EmbeddedGeneration) -> list[float]:
    return [time.perf_counter() async for _ in generation]


if __name__ == "__main__":
    main(sys.argv[1:])
