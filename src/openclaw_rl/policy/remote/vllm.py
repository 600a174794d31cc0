"""vLLM's HTTP server: `/v1/completions` with token ids in and out, and adapters loaded by name.

Needs `--enable-lora`, `--logprobs-mode processed_logprobs` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. Knows no
versions and no text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from openclaw_rl.model import Sampling
from openclaw_rl.policy.engine import EngineError, FinishReason, GrammarError, SampledToken
from openclaw_rl.policy.remote import model_list
from openclaw_rl.policy.remote.answers import number
from openclaw_rl.policy.remote.http import LOAD_SECONDS, NO_ROUTE, Http, Json, RefusedError, reading
from openclaw_rl.policy.remote.server import UnknownAdapterError

LEAST_TEMPERATURE = 0.01
"""vLLM raises smaller ones but 0 to this."""
_SEEDS = 2**63
_ID_MARK = "token_id:"
_ENDS: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


class VllmServer:
    """An `InferenceServer`."""

    name = "vLLM"
    reads_grammars = True
    # Its kernels for CPUs number "no adapter" -1, which then picks the adapter in the last slot: a request to
    # the base model was up to 14 nats off once --max-loras adapters had been loaded (0.32).
    mixes_base = True

    def __init__(self, url: str, api_key: str = "") -> None:
        self._http = Http(self.name, url, api_key)
        self._base = ""

    async def context_length(self) -> int:
        return await model_list.context_length(self._http)

    async def adapters(self) -> dict[str, str]:
        return await model_list.adapters(self._http)

    async def load(self, adapter: str, folder: Path) -> None:
        try:
            await self._http.order(
                "/v1/load_lora_adapter", {"lora_name": adapter, "lora_path": str(folder)}, LOAD_SECONDS
            )
        except RefusedError as error:
            raise EngineError(f"{self._http} did not load an adapter: {error}. {_fix(error)}") from None

    async def unload(self, adapter: str) -> None:
        try:
            await self._http.order("/v1/unload_lora_adapter", {"lora_name": adapter})
        except RefusedError as error:
            if error.status != 404:
                raise

    async def stream(
        self, adapter: str | None, prompt_ids: tuple[int, ...], sampling: Sampling, stop_ids: frozenset[int]
    ) -> AsyncGenerator[SampledToken]:
        body = {
            **await self._asked(adapter, prompt_ids, sampling.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "logprobs": sampling.top_logprobs,
            "ignore_eos": True,  # the model's own configuration may name others than the chat template's
            "stop_token_ids": sorted(stop_ids),
            "stream": True,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed % _SEEDS
        if sampling.grammar:
            body["structured_outputs"] = {"grammar": sampling.grammar}
        try:
            async with aclosing(self._http.events("/v1/completions", body)) as events:
                async for event in events:
                    for token in self._tokens(event, sampling.top_logprobs):
                        yield token
                        if token.finish:
                            return
        except RefusedError as error:
            raise self._failure(error, adapter, sampling) from None

    async def score(
        self,
        adapter: str | None,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        top_logprobs: int,
    ) -> list[SampledToken]:
        given = (*prompt_ids, *reply_ids)
        body = {**await self._asked(adapter, given, 1), "temperature": 0, "prompt_logprobs": top_logprobs}
        try:
            answer = await self._http.post("/v1/completions", body)
        except RefusedError as error:
            raise self._failure(error, adapter, None) from None
        with reading(self._http):
            told = answer["choices"][0]["prompt_logprobs"][len(prompt_ids) :]
            return [
                _scored(token_id, entry, top_logprobs)
                for token_id, entry in zip(reply_ids, told, strict=True)
            ]

    def unlearnable(self, sampling: Sampling) -> str:
        if 0 < sampling.temperature < LEAST_TEMPERATURE:
            return f"sampled by vLLM, which raises temperatures to {LEAST_TEMPERATURE}"
        return ""

    async def close(self) -> None:
        await self._http.close()

    async def _asked(self, adapter: str | None, prompt_ids: tuple[int, ...], most: int) -> Json:
        """What every request says: also what a model's own generation_config.json would say otherwise."""
        return {
            "model": adapter or await self._base_name(),
            "prompt": list(prompt_ids),
            "max_tokens": most,
            "min_p": 0,
            "repetition_penalty": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "skip_special_tokens": False,
            "add_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    async def _base_name(self) -> str:
        if not self._base:
            listed = await model_list.models(self._http)
            names = [model["id"] for model in listed if not model.get("parent")]
            if not names:
                raise EngineError(f"{self._http} serves no model")
            self._base = names[0]
        return self._base

    def _tokens(self, event: Json, top: int) -> list[SampledToken]:
        """Those of the first choice; no other was asked for."""
        with reading(self._http):
            nothing: Json = {}
            choice = next((each for each in event.get("choices", ()) if each.get("index", 0) == 0), nothing)
            ids, finish = choice.get("token_ids") or [], choice.get("finish_reason")
            kind = _ENDS.get(finish)
            told = choice["logprobs"] if ids else {"token_logprobs": [], "top_logprobs": []}
            likeliest = told["top_logprobs"] if top else [{}] * len(ids)
            found = [
                SampledToken(token_id, number(logprob), alternatives=_alternatives(near, top))
                for token_id, logprob, near in zip(ids, told["token_logprobs"], likeliest, strict=True)
            ]
        if finish is None:
            return found
        if kind is None:
            # "abort": somebody else ended it, and what there is of it is no sample.
            raise EngineError(f"{self._http} gave a reply up ({finish})")
        if not found:
            raise EngineError(f"{self._http} ended a reply without a token")
        return [*found[:-1], replace(found[-1], finish=kind)]

    def _failure(self, error: RefusedError, adapter: str | None, sampling: Sampling | None) -> EngineError:
        if error.status == 404 and adapter is not None:
            return UnknownAdapterError(f"{self._http} has no adapter {adapter}")
        if error.status in NO_ROUTE and (not self._base or self._base not in str(error)):
            return self._http.lacks("/v1/completions")
        if error.status == 404:
            self._base = ""  # restarted under another name
        if sampling is not None and sampling.grammar and "rammar" in str(error):
            return GrammarError(str(error))
        return EngineError(f"{self._http} refused a request (HTTP {error.status}): {error}")


def _alternatives(told: Mapping[str, float], top: int) -> tuple[tuple[int, float], ...]:
    """The likeliest first; the sampled one is among them in any case, and left out where it is not likely."""
    by_id = [(int(name.removeprefix(_ID_MARK)), number(value)) for name, value in told.items()]
    return tuple(sorted(by_id, key=lambda pair: -pair[1])[:top])


def _scored(token_id: int, entry: Mapping[str, Mapping[str, Any]], top: int) -> SampledToken:
    ranked = sorted((each["rank"], int(name), number(each["logprob"])) for name, each in entry.items())
    alternatives = tuple((name, logprob) for _, name, logprob in ranked[:top])
    return SampledToken(token_id, number(entry[str(token_id)]["logprob"]), alternatives=alternatives)


def _fix(error: RefusedError) -> str:
    words = str(error).lower()
    if error.status == 404 and "no adapter found" in words:
        return "It must see our data folder under the same path."
    if error.status == 404:
        return "Start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
    if "rank" in words:
        return "Start it with a --max-lora-rank of at least learn.lora_rank."
    return "See its log."
