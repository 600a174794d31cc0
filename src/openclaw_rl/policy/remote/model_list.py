"""What `/v1/models` tells of a server: its base model, the adapters beside it, and its context.

vLLM and SGLang answer in one form. An adapter is a model that has a parent.
"""

from __future__ import annotations

from openclaw_rl.policy.engine import EngineError
from openclaw_rl.policy.remote.http import NO_KEY, NO_ROUTE, Http, Json, RefusedError, reading


async def models(http: Http) -> list[Json]:
    """All of them, as the server describes them."""
    try:
        answer = await http.get("/v1/models")
    except RefusedError as error:
        if error.status in NO_ROUTE:
            raise http.lacks("/v1/models") from None
        if error.status in NO_KEY:
            raise
        raise EngineError(f"{http} refused to list its models (HTTP {error.status}): {error}") from None
    with reading(http):
        return [{**model, "id": str(model["id"])} for model in answer["data"]]


async def context_length(http: Http) -> int:
    """See `InferenceServer`. Raises EngineError for a server that does not say it."""
    for model in await models(http):
        length = model.get("max_model_len")
        if type(length) is int and length > 0:
            return length
    raise EngineError(f"{http} does not say how many tokens its context has; is it {http.name}?")


async def adapters(http: Http) -> dict[str, str]:
    """See `InferenceServer`."""
    listed = await models(http)
    return {model["id"]: str(model.get("root")) for model in listed if model.get("parent")}
