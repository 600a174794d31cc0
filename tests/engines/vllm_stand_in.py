"""A stand-in for vLLM's API server: the routes that we use, with the answers that vLLM 0.32 gave to them.

Written from exchanges with the real server; tests/engines/test_real_vllm.py runs the same suite on it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from tiny_server import Asked, Step, TinyServer

from openclaw_rl.policy.embedded.adapter import Adapter
from openclaw_rl.policy.embedded.grammar import Grammars

MASKED = -9999.0
BASE = "base"


SLOTS = 4


class TinyVllm(TinyServer):
    @cached_property
    def grammars(self) -> Grammars:
        return Grammars(self.folder / "tokenizer.json", self.network.vocabulary, {2})

    def close(self) -> None:
        if "grammars" in self.__dict__:
            self.grammars.close()

    def _factors(self, adapter: str | None) -> Adapter | None:
        # What vLLM does on CPUs to a request without an adapter, once the last slot has one.
        if adapter is None and self.adapters and len(self.slots) >= SLOTS:
            return self.slots[SLOTS - 1]
        return super()._factors(adapter)

    def told(self, scores: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        return left.masked_fill(left == float("-inf"), MASKED)


def vllm_app(server: TinyVllm, api_key: str = "") -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        given = request.headers.get("authorization", "")
        if api_key and request.url.path.startswith("/v1") and given != f"Bearer {api_key}":
            return JSONResponse({"error": "Unauthorized"}, 401)
        if server.dead:
            return _error(500, "InternalServerError", "EngineCore encountered an issue.")
        if server.busy and request.url.path == "/v1/completions":
            server.busy -= 1
            return Response(status_code=503)
        answer: Response = await call_next(request)
        return answer

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        base = {"id": BASE, "root": str(server.folder), "parent": None, "max_model_len": server.context}
        adapters = [
            {"id": name, "root": path, "parent": BASE, "max_model_len": None}
            for name, path in server.adapters.items()
        ]
        return {"object": "list", "data": [base, *adapters]}

    @app.post("/v1/load_lora_adapter")
    async def load(body: dict[str, Any]) -> Response:
        name, path = body["lora_name"], body["lora_path"]
        if name in server.adapters:
            return _error(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
        if not Path(path).is_dir():
            return _error(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for <path>")
        try:
            await asyncio.to_thread(server.load, name, path)
        except (OSError, ValueError) as error:
            return _error(500, "InternalServerError", str(error))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @app.post("/v1/unload_lora_adapter")
    async def unload(body: dict[str, Any]) -> Response:
        name = body["lora_name"]
        if server.adapters.pop(name, None) is None:
            return _error(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    @app.post("/v1/completions")
    async def completions(body: dict[str, Any]) -> Response:
        name = body["model"]
        if name != BASE and name not in server.adapters:
            return _error(404, "NotFoundError", f"The model `{name}` does not exist. Valid aliases: {BASE}.")
        adapter = None if name == BASE else name
        if len(body["prompt"]) >= server.context:
            return _error(400, "BadRequestError", "max_tokens must be at least 1, got 0.")
        if "prompt_logprobs" in body:
            return JSONResponse(await asyncio.to_thread(_scored, server, adapter, body))
        return StreamingResponse(_events(server, adapter, body), media_type="text/event-stream")

    return app


async def _events(server: TinyVllm, adapter: str | None, body: dict[str, Any]) -> AsyncIterator[str]:
    outside = [each for each in body["prompt"] if each >= server.network.vocabulary]
    if outside:
        error = {"message": f"Token id {outside[0]} is out of vocabulary", "code": 400}
        yield f"data: {json.dumps({'error': error})}\n\n"
        yield "data: [DONE]\n\n"
        return
    constraint = None
    if grammar := body.get("structured_outputs", {}).get("grammar"):
        await server.grammars.ready(grammar)
        constraint = server.grammars.constraint(grammar)
    asked = Asked(
        tuple(body["prompt"]),
        body["max_tokens"],
        max(body["temperature"], 0.01) if body["temperature"] else 0.0,
        body["top_p"],
        max(body["top_k"], 0),
        body.get("seed"),
        frozenset(body["stop_token_ids"]) if body["ignore_eos"] else frozenset({2, *body["stop_token_ids"]}),
        constraint,
    )
    async for step in server.steps(adapter, asked):
        yield f"data: {json.dumps(_event(step, body['logprobs']))}\n\n"
    yield "data: [DONE]\n\n"


def _event(step: Step, count: int) -> dict[str, Any]:
    likeliest = {step.token_id: step.logprob, **dict(step.likeliest(count))}
    logprobs = {
        "text_offset": [0],
        "token_logprobs": [_json(step.logprob)],
        "tokens": [f"token_id:{step.token_id}"],
        "top_logprobs": [{f"token_id:{each}": _json(logprob) for each, logprob in likeliest.items()}],
    }
    choice = {
        "index": 0,
        "text": "",
        "logprobs": logprobs,
        "finish_reason": step.finish,
        "token_ids": [step.token_id],
    }
    return {"object": "text_completion", "choices": [choice]}


def _json(number: float) -> float | None:
    """What is not finite comes as null."""
    return number if math.isfinite(number) else None


def _scored(server: TinyVllm, adapter: str | None, body: dict[str, Any]) -> dict[str, Any]:
    ids: Sequence[int] = body["prompt"]
    rows = server.scores(adapter, ids)
    told: list[dict[str, Any] | None] = [None]
    for row, token_id in zip(rows[:-1], ids[1:], strict=True):
        ranks = {int(each): rank for rank, each in enumerate(row.argsort(descending=True), start=1)}
        names = [token_id, *row.topk(body["prompt_logprobs"]).indices.tolist()]
        told.append({str(each): {"logprob": float(row[each]), "rank": ranks[each]} for each in names})
    return {"choices": [{"index": 0, "text": "", "prompt_logprobs": told, "finish_reason": "length"}]}


def _error(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)
