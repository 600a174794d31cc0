"""The parts where contenders answer the same prompts in turns: our engine, our gateway, others.

Each contender runs in a process of its own. A round has each of them answer each number of streams once, so
that a busy moment of the machine meets all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2

from openclaw_rl import process_environment
from openclaw_rl.evals import random_versions
from openclaw_rl.evals.own_server import OwnServer, own_server
from openclaw_rl.evals.serve_bench import vllm_server
from openclaw_rl.evals.serve_bench.http_streams import OverHttp
from openclaw_rl.evals.serve_bench.measure import Contender, Job, Pass
from openclaw_rl.evals.serve_bench.ours import ADAPTED
from openclaw_rl.evals.serve_bench.plan import SERVED, TEMPERATURE, Plan, Steps
from openclaw_rl.evals.serve_bench.summary import Part, Passes, of_passes
from openclaw_rl.evals.serve_bench.worker import Worker
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.store import Store

FIRST_TOKENS = 10
"""Requests of each round whose first token is timed, one after another."""
VLLM_CONTEXT = 2048
"""Enough for the prompts, and all the memory that it needs to hold ready."""
_PROGRAMS = {
    "ours": "our engine",
    "products": "the matrix products",
    "generate": "transformers generate",
}
"""How errors call the programs that are measured without HTTP."""


class _Engine:
    """Our engine bare, with version `version`."""

    def __init__(self, worker: Worker, version: int) -> None:
        self._worker = worker
        self._version = version

    def measure(self, job: Job) -> Pass:
        return _asked(self._worker, job, version=self._version)


class _BesideABusyProgram:
    """A contender while another program keeps a core busy, as a user's own may.

    It has prompts of its own, since the contender has answered the same ones alone and would reuse them.
    """

    def __init__(self, contender: Contender) -> None:
        self._contender = contender

    def measure(self, job: Job) -> Pass:
        unknown = Job(tuple(f"Meanwhile: {prompt}" for prompt in job.prompts), job.tokens)
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            return self._contender.measure(unknown)
        finally:
            busy.kill()
            busy.wait()


class _Other:
    """A program that has nothing to choose: `transformers`, or the matrix products alone."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def measure(self, job: Job) -> Pass:
        return _asked(self._worker, job)


def _asked(worker: Worker, job: Job, **more: int) -> Pass:
    asked = {"prompts": job.prompts, "tokens": job.tokens, "temperature": TEMPERATURE, **more}
    return Pass.from_json(worker.ask(asked))


def engine(plan: Plan, steps: Steps) -> Part:
    """Our engine without HTTP beside `transformers` generate, and what their matrix products take alone."""
    with steps.part("engine", _turns(plan, 4, plan.streams)), ExitStack() as running:
        steps.begin("starting the engine and transformers")
        ours = running.enter_context(closing(_bare_engine(plan)))
        theirs = running.enter_context(closing(_generate(plan)))
        products = running.enter_context(closing(_products(plan)))
        contenders: dict[str, Contender] = {
            "engine": _Engine(ours, 0),
            "engine_lora": _Engine(ours, ADAPTED),
            "generate": _Other(theirs),
            "products": _Other(products),
        }
        found = in_turns(contenders, plan, plan.streams, steps)
        return of_passes(found, versions={"transformers": theirs.about["version"]})


def gateway(plan: Plan, steps: Steps) -> Part:
    """Our server over HTTP beside our engine bare."""
    total = _turns(plan, 2, plan.over_http) + plan.rounds
    with steps.part("gateway", total), ExitStack() as running:
        steps.begin("starting the engine and the server")
        ours = running.enter_context(closing(_bare_engine(plan)))
        server = running.enter_context(own_server(plan.settings, plan.log))
        contenders: dict[str, Contender] = {"engine": _Engine(ours, 0), "gateway": _over_http(server)}
        found = in_turns(contenders, plan, plan.over_http, steps)
        firsts: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(plan.rounds):
            steps.begin("first tokens")
            for number in range(FIRST_TOKENS):
                job = plan.job(f"First {turn} {number}", 1, 2)
                for name, contender in contenders.items():
                    firsts[name] += contender.measure(job).first_token_seconds
            steps.done()
        return of_passes(found, firsts)


def busy(plan: Plan, steps: Steps) -> Part:
    """Our engine alone and beside a busy program, and both with threads that sleep at barriers."""
    with steps.part("busy", _turns(plan, 4, plan.over_http)), ExitStack() as running:
        steps.begin("starting the engine twice")
        contenders: dict[str, Contender] = {}
        for name, waits in (("engine", {}), ("sleeping", {"OMP_WAIT_POLICY": "PASSIVE"})):
            worker = running.enter_context(closing(_bare_engine(plan, waits)))
            contenders[name] = _Engine(worker, 0)
            contenders[f"{name}_busy"] = _BesideABusyProgram(contenders[name])
        return of_passes(in_turns(contenders, plan, plan.over_http, steps))


def vllm(plan: Plan, steps: Steps) -> Part:
    """Our server beside vLLM's, both over HTTP, with and without an adapter."""
    with steps.part("vllm", _turns(plan, 4, plan.over_http)), ExitStack() as running:
        steps.begin("starting our server")
        server = running.enter_context(own_server(plan.settings, plan.log))
        _give_adapter(server, plan)
        steps.begin("starting vLLM without adapters; it compiles for minutes the first time")
        without = running.enter_context(_vllm(plan, adapter=None))
        steps.begin("starting vLLM with an adapter")
        adapted = running.enter_context(_vllm(plan, adapter=plan.adapter_folder))
        endless = {"temperature": TEMPERATURE, "ignore_eos": True}
        contenders = {
            "gateway": _over_http(server, 0),
            "gateway_lora": _over_http(server, ADAPTED),
            "vllm": OverHttp(without, vllm_server.BASE, **endless),
            "vllm_lora": OverHttp(adapted, vllm_server.ADAPTED, **endless),
        }
        found = in_turns(contenders, plan, plan.over_http, steps)
        version = httpx2.get(f"{without}/version").json()["version"]
        return of_passes(found, versions={"vllm": version})


def in_turns(contenders: Mapping[str, Contender], plan: Plan, streams: Sequence[int], steps: Steps) -> Passes:
    """Every contender with every number of streams, `plan.rounds` times, after a short pass to warm up."""
    for name, contender in contenders.items():
        for count in sorted({1, streams[-1]}):
            steps.begin(f"warming up {name}")
            contender.measure(plan.job("Warm up", count, min(plan.tokens, 8)))
    found: Passes = {name: {count: [] for count in streams} for name in contenders}
    for turn in range(plan.rounds):
        for count in streams:
            job = plan.job(f"Round {turn}, {count} together", count)
            for name, contender in contenders.items():
                steps.begin(f"{name}, {count} at a time")
                found[name][count].append(contender.measure(job))
                steps.done()
    return found


def _turns(plan: Plan, contenders: int, streams: Sequence[int]) -> int:
    return contenders * plan.rounds * len(streams)


def _bare_engine(plan: Plan, more_environment: Mapping[str, str] | None = None) -> Worker:
    settings = {**plan.settings, "data_dir": str(plan.scratch / "engine")}
    environment = {**process_environment.ours(), **(more_environment or {})}
    return _worker(plan, "ours", [json.dumps(settings), str(plan.adapter_folder)], environment)


def _products(plan: Plan) -> Worker:
    return _worker(plan, "products", [json.dumps(dict(plan.settings))], process_environment.ours())


def _generate(plan: Plan) -> Worker:
    setup = {
        "model_folder": str(plan.model_folder),
        "dtype": plan.dtype,
        "device": plan.device,
        "threads": plan.threads,
    }
    environment = {**process_environment.others(), "OMP_NUM_THREADS": str(plan.threads)}
    return _worker(plan, "generate", [json.dumps(setup)], environment)


def _worker(plan: Plan, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Worker:
    """A program of this folder, to be closed."""
    module = f"openclaw_rl.evals.serve_bench.{name}"
    return Worker(_PROGRAMS[name], module, arguments, environment, plan.log)


@contextmanager
def _vllm(plan: Plan, adapter: Path | None) -> Iterator[str]:
    if plan.python_with_vllm is None:
        raise ValueError("there is no vLLM")
    with vllm_server.vllm_server(
        plan.python_with_vllm,
        plan.model_folder,
        adapter=adapter,
        rank=plan.learn.lora_rank,
        targets=plan.learn.lora_targets,
        dtype=plan.dtype,
        threads=plan.threads,
        streams=plan.over_http[-1],
        context=min(VLLM_CONTEXT, plan.context),
        cache=model_files.cache_folder() / "rivals" / "compiled",
        log=plan.log,
    ) as url:
        yield url


def _over_http(server: OwnServer, version: int | None = None) -> OverHttp:
    model = SERVED if version is None else f"{SERVED}@{version}"
    return OverHttp(server.url, model, temperature=TEMPERATURE)


def _give_adapter(server: OwnServer, plan: Plan) -> None:
    """Make the random adapter a version of the server's."""
    folder = server.folder / "versions" / plan.adapter_folder.name
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(plan.adapter_folder)
    store = Store.open(server.folder / "store.sqlite")
    with closing(store):
        random_versions.record(store, folder)
