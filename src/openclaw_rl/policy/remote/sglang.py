"""SGLang's server: its native `/generate` with token ids in and out, and adapters loaded by name.

Needs `--enable-lora`, `--max-lora-rank` and `--lora-target-modules`. Written from SGLang's documents and
source; no build of it runs where this was made. Knows no versions and no text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from openclaw_rl.model import Sampling
from openclaw_rl.policy.engine import EngineBusyError, EngineError, FinishReason, GrammarError, SampledToken
from openclaw_rl.policy.remote import model_list
from openclaw_rl.policy.remote.answers import number
from openclaw_rl.policy.remote.http import LOAD_SECONDS, NO_ROUTE, Http, Json, RefusedError, reading
from openclaw_rl.policy.remote.server import UnknownAdapterError

_SEEDS = 2**31
_NOT_LOADED = "adapters are not loaded"
_ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class SglangServer:
    """An `InferenceServer`."""

    name = "SGLang"
    reads_grammars = False
    mixes_base = False

    def __init__(self, url: str, api_key: str = "") -> None:
        self._http = Http(self.name, url, api_key)

    async def context_length(self) -> int:
        return await model_list.context_length(self._http)

    async def adapters(self) -> dict[str, str]:
        return await model_list.adapters(self._http)

    async def load(self, adapter: str, folder: Path) -> None:
        try:
            await self._http.order(
                "/load_lora_adapter", {"lora_name": adapter, "lora_path": str(folder)}, LOAD_SECONDS
            )
        except RefusedError as error:
            raise EngineError(f"{self._http} did not load an adapter: {error}. {_fix(error)}") from None

    async def unload(self, adapter: str) -> None:
        try:
            await self._http.order("/unload_lora_adapter", {"lora_name": adapter})
        except RefusedError as error:
            if error.status != 400:  # it has none of that name
                raise

    async def stream(
        self, adapter: str | None, prompt_ids: tuple[int, ...], sampling: Sampling, stop_ids: frozenset[int]
    ) -> AsyncGenerator[SampledToken]:
        if sampling.grammar:
            raise GrammarError("SGLang is given no grammars")
        parameters: Json = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop_token_ids": sorted(stop_ids),
        }
        if sampling.seed is not None:
            parameters["sampling_seed"] = sampling.seed % _SEEDS
        body = {**_asked(adapter, prompt_ids, parameters, sampling.top_logprobs), "stream": True}
        seen = 0
        try:
            async with aclosing(self._http.events("/generate", body)) as events:
                async for event in events:
                    for token in self._fresh(event, seen, sampling.top_logprobs):
                        seen += 1
                        yield token
                        if token.finish:
                            return
        except RefusedError as error:
            raise self._failure(error, adapter) from None

    async def score(
        self,
        adapter: str | None,
        prompt_ids: tuple[int, ...],
        reply_ids: tuple[int, ...],
        top_logprobs: int,
    ) -> list[SampledToken]:
        parameters = {"max_new_tokens": 1, "temperature": 1.0}
        body = _asked(adapter, (*prompt_ids, *reply_ids), parameters, top_logprobs)
        try:
            answer = await self._http.post("/generate", {**body, "logprob_start_len": 0})
        except RefusedError as error:
            raise self._failure(error, adapter) from None
        first = len(prompt_ids)
        with reading(self._http):
            told = answer["meta_info"]["input_token_logprobs"][first:]
            likeliest = (
                answer["meta_info"]["input_top_logprobs"][first:] if top_logprobs else [()] * len(told)
            )
            return [_token(*each, top_logprobs) for each in zip(told, likeliest, strict=True)]

    def unlearnable(self, _: Sampling) -> str:
        return ""  # of the whole vocabulary at the temperature, before top-p and top-k

    async def close(self) -> None:
        await self._http.close()

    def _fresh(self, event: Json, seen: int, top: int) -> list[SampledToken]:
        """The tokens of an event after the first `seen`. Events tell all tokens so far, or with
        `--incremental-streaming-output` only the new ones."""
        with reading(self._http):
            about = event["meta_info"]
            told, count = about["output_token_logprobs"], int(about["completion_tokens"])
            likeliest = about["output_top_logprobs"] if top else [()] * len(told)
            ended = about["finish_reason"]
            kind = _ENDS.get(ended["type"]) if ended else None
            busy = bool(ended) and ended.get("status_code") in (429, 503)
            why = (ended.get("message") or ended["type"]) if ended else ""
            if len(told) != len(likeliest) or len(told) not in (count, count - seen):
                raise ValueError
            start = seen if len(told) == count else 0
            found = [_token(*each, top) for each in zip(told[start:], likeliest[start:], strict=True)]
        if not ended:
            return found
        if kind is None:
            failure = EngineBusyError if busy else EngineError
            raise failure(f"{self._http} gave a reply up ({why})")
        if not found:
            raise EngineError(f"{self._http} ended a reply without a token")
        return [*found[:-1], replace(found[-1], finish=kind)]

    def _failure(self, error: RefusedError, adapter: str | None) -> EngineError:
        if adapter is not None and _NOT_LOADED in str(error):
            return UnknownAdapterError(f"{self._http} has no adapter {adapter}")
        if error.status in NO_ROUTE:
            return self._http.lacks("/generate")
        return EngineError(f"{self._http} refused a request: {error}")


def _asked(adapter: str | None, ids: Sequence[int], parameters: Json, top_logprobs: int) -> Json:
    """What every request says: also what a model's own generation_config.json would say otherwise."""
    always = {
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "ignore_eos": True,  # the model's own configuration may name others than the chat template's
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    body: Json = {
        "input_ids": list(ids),
        "sampling_params": {**always, **parameters},
        "return_logprob": True,
        "top_logprobs_num": top_logprobs,
    }
    return body if adapter is None else {**body, "lora_path": adapter}


def _token(told: Sequence[Any], likeliest: Sequence[Sequence[Any]] | None, top: int) -> SampledToken:
    """From [log-prob, id, text] and the same for the likeliest."""
    alternatives = sorted(((each[1], number(each[0])) for each in likeliest or ()), key=lambda p: -p[1])
    return SampledToken(told[1], number(told[0]), alternatives=tuple(alternatives[:top]))


def _fix(error: RefusedError) -> str:
    words = str(error).lower()
    if "not enabled" in words or error.status == 404:
        return "Start it with --enable-lora."
    if "rank" in words or "incompatible" in words or "target" in words:
        return "Start it with --max-lora-rank and --lora-target-modules as learn.lora_rank and lora_targets."
    return "It must see our data folder under the same path; see its log."
