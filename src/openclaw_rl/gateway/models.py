"""The names by which a request may ask for the policy, and how the policy is listed.

`<served name>` is the serving version, `<served name>@<n>` version n. Knows no turn.
"""

from __future__ import annotations

import re
from typing import Any

from anyio import to_thread

from openclaw_rl.gateway.errors import ApiError, not_found
from openclaw_rl.gateway.service import Service
from openclaw_rl.model import PolicyVersion, Sampling
from openclaw_rl.policy.engine import EngineError, Generation, UnknownVersionError

_NUMBER = re.compile(r"[0-9]{1,9}")


async def pinned_version(service: Service, model: str) -> PolicyVersion | None:
    """The version that a model name asks for, None for the serving one; raises ApiError 404."""
    name = service.settings.served_name
    if model == name:
        return None
    number = model[len(name) + 1 :] if model.startswith(f"{name}@") else ""
    if _NUMBER.fullmatch(number):
        version = await to_thread.run_sync(service.store.learning.version, int(number))
        if version is not None:
            return version
    raise await _unknown_model(service, model)


async def generate(
    service: Service, prompt_ids: tuple[int, ...], sampling: Sampling, pinned: PolicyVersion | None
) -> Generation:
    """Admit a request to the engine, which first loads the version asked for if it has not got it."""
    if pinned is None:
        return service.engine.generate(prompt_ids, sampling)
    try:
        return service.engine.generate(prompt_ids, sampling, pinned.number)
    except UnknownVersionError:
        await _load(service, pinned)
        return service.engine.generate(prompt_ids, sampling, pinned.number)


async def _load(service: Service, version: PolicyVersion) -> None:
    try:
        await service.engine.publish(version, serve=False)
    except EngineError as error:
        raise not_found(
            f"Policy version {version.number} cannot be loaded: {error}", "model_not_found", "model"
        ) from error


async def listing(service: Service, model: str) -> dict[str, Any]:
    """A model as `GET /v1/models` shows it."""
    pinned = await pinned_version(service, model)
    context_length = service.engine.context_length
    return {
        "id": model,
        "object": "model",
        "created": int(pinned.created_at if pinned else service.started_at),
        "owned_by": "openclaw-rl",
        # Clients read either name; both say how many tokens prompt and reply may have together.
        "context_length": context_length,
        "max_model_len": context_length,
        "policy_version": pinned.number if pinned else service.engine.serving_version,
    }


async def _unknown_model(service: Service, model: str) -> ApiError:
    versions = await to_thread.run_sync(service.store.learning.versions)
    name = service.settings.served_name
    return not_found(
        f"The model {model!r} does not exist. This server has {name!r}, and {name}@0 to "
        f"{name}@{versions[0].number} for its single policy versions.",
        "model_not_found",
        "model",
    )
