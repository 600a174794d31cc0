"""A stand-in for SGLang's server: the native routes that we use, in the shapes of its documents and source.

SGLang has no build that runs here, so unlike vLLM's this one was never held against the real server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from tiny_server import Asked, Step, TinyServer


class TinySglang(TinyServer):
    incremental = False
    """Each event tells its own tokens alone, as with --incremental-streaming-output."""


def sglang_app(server: TinySglang) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        base = {"id": str(server.folder), "root": str(server.folder), "max_model_len": server.context}
        adapters = [
            {"id": name, "root": path, "parent": str(server.folder), "max_model_len": None}
            for name, path in server.adapters.items()
        ]
        return {"object": "list", "data": [base, *adapters]}

    @app.post("/load_lora_adapter")
    async def load(body: dict[str, Any]) -> Response:
        name, path = body["lora_name"], body["lora_path"]
        if name in server.adapters:
            return _update(server, f"LoRA adapter with name {name} already exists.")
        if not Path(path).is_dir():
            return _update(server, f"Can't find 'adapter_config.json' at '{path}'")
        try:
            await asyncio.to_thread(server.load, name, path)
        except (OSError, ValueError) as error:
            return _update(server, str(error))
        return _update(server)

    @app.post("/unload_lora_adapter")
    async def unload(body: dict[str, Any]) -> Response:
        name = body["lora_name"]
        if server.adapters.pop(name, None) is None:
            return _update(server, f"LoRA adapter with name {name} does not exist.")
        return _update(server)

    @app.post("/generate")
    async def generate(body: dict[str, Any]) -> Response:
        refusal = _refusal(server, body)
        if body.get("stream"):
            return StreamingResponse(_events(server, body, refusal), media_type="text/event-stream")
        if refusal:
            return JSONResponse({"error": {"message": refusal}}, 400)
        return JSONResponse(await asyncio.to_thread(_scored, server, body))

    return app


def _refusal(server: TinySglang, body: dict[str, Any]) -> str:
    adapter, ids = body.get("lora_path"), body["input_ids"]
    if adapter is not None and adapter not in server.adapters:
        loaded = list(server.adapters)
        return f"The following requested LoRA adapters are not loaded: {adapter}\nLoaded adapters: {loaded}."
    if any(not 0 <= each < server.network.vocabulary for each in ids):
        return "The input_ids contains values greater than the vocab size"
    most = body["sampling_params"]["max_new_tokens"]
    if len(ids) + most > server.context:
        return f"Requested token count exceeds the model's maximum context length of {server.context} tokens."
    return ""


async def _events(server: TinySglang, body: dict[str, Any], refusal: str) -> AsyncIterator[str]:
    if refusal:
        yield _event({"error": {"message": refusal}})
        yield "data: [DONE]\n\n"
        return
    parameters = body["sampling_params"]
    asked = Asked(
        tuple(body["input_ids"]),
        parameters["max_new_tokens"],
        parameters["temperature"],
        parameters["top_p"],
        max(parameters["top_k"], 0),
        None,  # seeds count only with --enable-deterministic-inference
        frozenset(parameters["stop_token_ids"]),
    )
    steps: list[Step] = []
    async for step in server.steps(body.get("lora_path"), asked):
        steps.append(step)
        told = steps[-1:] if server.incremental else steps
        about = {
            "id": "r",
            "finish_reason": _finish(step, len(steps)),
            "prompt_tokens": len(asked.prompt),
            "completion_tokens": len(steps),
            "output_token_logprobs": [[each.logprob, each.token_id, None] for each in told],
            "output_top_logprobs": [
                [[logprob, token_id, None] for token_id, logprob in each.likeliest(body["top_logprobs_num"])]
                for each in told
            ],
        }
        yield _event({"text": "", "output_ids": [each.token_id for each in told], "meta_info": about})
    yield "data: [DONE]\n\n"


def _finish(step: Step, count: int) -> dict[str, Any] | None:
    if step.finish == "stop":
        return {"type": "stop", "matched": step.token_id}
    if step.finish == "length":
        return {"type": "length", "length": count}
    return {"type": "abort", "message": "Aborted"} if step.finish else None


def _scored(server: TinySglang, body: dict[str, Any]) -> dict[str, Any]:
    ids, top = body["input_ids"], body["top_logprobs_num"]
    rows = server.scores(body.get("lora_path"), ids)
    told: list[list[Any]] = [[None, ids[0], None]]
    likeliest: list[list[Any] | None] = [None]
    for row, token_id in zip(rows[:-1], ids[1:], strict=True):
        told.append([float(row[token_id]), token_id, None])
        found = row.topk(top)
        pairs = zip(found.values.tolist(), found.indices.tolist(), strict=True)
        likeliest.append([[logprob, each, None] for logprob, each in pairs])
    about = {"input_token_logprobs": told, "input_top_logprobs": likeliest, "completion_tokens": 1}
    return {"text": "", "meta_info": about}


def _update(server: TinySglang, fault: str = "") -> JSONResponse:
    body = {"success": not fault, "error_message": fault, "loaded_adapters": dict(server.adapters)}
    return JSONResponse(body, 400 if fault else 200)


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
