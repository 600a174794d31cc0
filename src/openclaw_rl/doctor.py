"""Is all well with a running server? A plain, a streamed and a tool request, and what it says of the rest.

Knows the server by HTTP alone, so it can look at one on another machine. Its requests are side turns,
which never train. The command `doctor`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import httpx2

from openclaw_rl.config import Settings
from openclaw_rl.gateway.auth import KEY_HEADER
from openclaw_rl.policy.engine import EngineError
from openclaw_rl.processes.engines import server_at

TIMEOUT_SECONDS = 120.0
_QUESTION = [{"role": "user", "content": "Say hello."}]
_TOOL_QUESTION = [{"role": "user", "content": "What time is it? Use the tool."}]
_TOOL = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}
_MOST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: Literal["ok", "warning", "failed"]
    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.state:<8} {self.name}: {self.found}" + (f"; {self.fix}" if self.fix else "")


class _FailedError(Exception):
    """A check that failed: what was found, and the fix."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.found = found
        self.fix = fix


class Doctor:
    def __init__(self, url: str, keys: Mapping[str, str], model: str = "") -> None:
        """`url` may end with /v1, as clients write it; `keys` are headers.

        Without `model` the first that the server lists is asked.
        """
        self._url = url.rstrip("/").removesuffix("/v1")
        headers = {"X-Turn-Type": "side", **keys}
        self._http = httpx2.Client(base_url=self._url, headers=headers, timeout=TIMEOUT_SECONDS)
        self._model = model
        self._upstream = ""  # what a server in record-only mode passes on to
        self._turns: list[str] = []

    def examine(self) -> Iterator[Check]:
        """The checks as they are made. After one that the others need has failed there are no more."""
        with self._http:
            for name, look, is_needed in (
                ("server", self._server, True),
                ("ready", self._ready, True),
                ("model", self._listed, True),
                ("plain request", self._plain, False),
                ("streamed request", self._streamed, False),
                ("tool request", self._tools, False),
                ("recording", self._recorded, False),
            ):
                check = self._check(name, look)
                yield check
                if check.state == "failed" and is_needed:
                    return
            yield from self._reported()

    def _check(self, name: str, look: Callable[[], Check | str]) -> Check:
        try:
            found = look()
        except _FailedError as failed:
            return Check(name, "failed", failed.found, failed.fix)
        except httpx2.TimeoutException:
            return Check(name, "failed", f"no answer in {TIMEOUT_SECONDS:g} s", "see the server's log")
        except httpx2.UnsupportedProtocol:
            return Check(name, "failed", f"{self._url} is no address", "begin it with http:// or https://")
        except httpx2.HTTPError as error:
            return Check(
                name,
                "failed",
                f"{self._url} cannot be reached ({type(error).__name__})",
                "start `openclaw-rl up`, or give the right --url or --data-dir",
            )
        except (ValueError, LookupError, TypeError):
            return Check(name, "failed", "the answer has a form that it should not have", "is it our server?")
        return Check(name, "ok", found) if isinstance(found, str) else found

    def _server(self) -> str:
        self._get("/healthz")
        return f"{self._url} answers"

    def _ready(self) -> str:
        said = self._get("/readyz")
        self._upstream = said.get("upstream", "")
        if self._upstream:
            return f"records what {self._upstream} answers; nothing trains"
        return f"policy version {said['policy_version']} serves"

    def _listed(self) -> str:
        models = {model["id"]: model for model in self._get("/v1/models")["data"]}
        self._model = self._model or next(iter(models))
        if self._upstream:
            return f"{self._model}, of {len(models)} that the upstream lists"
        known = models.get(self._model) or self._get(f"/v1/models/{self._model}")
        return f"{self._model}, context of {known['context_length']} tokens"

    def _plain(self) -> str:
        started = time.monotonic()
        body = self._ask(_QUESTION)
        usage = body["usage"]
        words = body["choices"][0]["message"]["content"]
        if not isinstance(words, str):
            raise _FailedError("the reply holds no text", "see the model's chat template")
        seconds = time.monotonic() - started
        return f"{usage['completion_tokens']} tokens in {seconds:.1f} s"

    def _streamed(self) -> str:
        started, first, events = time.monotonic(), 0.0, []
        asked = {**self._asked(_QUESTION), "stream": True, "stream_options": {"include_usage": True}}
        with self._http.stream("POST", "/v1/chat/completions", json=asked) as response:
            if response.status_code != 200:
                response.read()
                raise _refusal(response)
            self._turns.append(response.headers["X-Turn-Id"])
            for line in response.iter_lines():
                if line.startswith("data: "):
                    first = first or time.monotonic() - started
                    events.append(line.removeprefix("data: "))
        if events[-1] != "[DONE]" or "error" in json.loads(events[-2]):
            raise _FailedError("the stream broke off", "see the server's log")
        usage = json.loads(events[-2]).get("usage")
        if not usage:  # an upstream that does not know stream_options
            return f"first event after {first:.2f} s, {len(events)} events, no usage at its end"
        return f"first event after {first:.2f} s, {usage['completion_tokens']} tokens, usage at its end"

    def _tools(self) -> Check | str:
        before = self._get("/v1/admin/status")
        message = self._ask(_TOOL_QUESTION, tools=[_TOOL])["choices"][0]["message"]
        dialect = f" (dialect {before['tool_dialect']})" if "tool_dialect" in before else ""
        calls = [call["function"]["name"] for call in message.get("tool_calls") or []]
        if calls:
            return f"called {', '.join(calls)}{dialect}"
        found = f"answered in words and called nothing{dialect}"
        unread = self._get("/v1/admin/status").get("unread_tool_calls", 0)
        if unread > before.get("unread_tool_calls", 0):
            found = f"wrote what looks like a call and is none in its template's dialect{dialect}"
        return Check("tool request", "warning", found, "for an agent take a model that was trained on tools")

    def _recorded(self) -> str:
        listed = {turn["turn_id"]: turn["state"] for turn in self._get("/v1/admin/turns")["data"]}
        lost = [turn for turn in self._turns if turn not in listed]
        if lost:
            raise _FailedError(f"{len(lost)} of {len(self._turns)} turns are not in the store", "see its log")
        states = sorted({listed[turn] for turn in self._turns})
        return f"doctor's own {len(self._turns)} turns are in the store, as {' and '.join(states)}"

    def _reported(self) -> Iterator[Check]:
        """What the judge and the learner last said of themselves, and what the next update waits for."""
        try:
            status = self._get("/v1/admin/status")
        except (_FailedError, httpx2.HTTPError) as error:
            yield Check("judge and learner", "failed", str(error), "see the server's log")
            return
        processes = {process["name"]: process for process in status["processes"]}
        coming, counts = status["next_update"], status["counts"]
        yield _process("judge", processes)
        if coming is None:
            yield Check("learner", "ok", "none, since the upstream's model is not ours to train")
            return
        if coming["enabled"]:
            yield _process("learner", processes)
        else:
            yield Check("learner", "warning", "learn.enabled is false", "set it to true to learn")
        collected = f"{coming['collected']} of {coming['needed']} samples, {coming['missing']} more needed"
        waiting = f"{counts['waiting_next_state']} turns wait for a next state"
        yield Check("next update", "ok", f"{collected}; {waiting}")

    def _ask(self, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
        response = self._http.post("/v1/chat/completions", json={**self._asked(messages), **fields})
        body = _read(response)
        self._turns.append(response.headers["X-Turn-Id"])
        return body

    def _asked(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": self._model, "messages": messages}
        # Upstreams disagree on what the budget is called, and some refuse the other name.
        return asked if self._upstream else {**asked, "max_tokens": _MOST_TOKENS}

    def _get(self, path: str) -> dict[str, Any]:
        return _read(self._http.get(path))


def run(
    settings: Settings, url: str | None, key: str | None, model: str | None, say: Callable[[str], None]
) -> int:
    """Say what is found, a line for each check, and return the exit status: 1 if any check failed."""
    keys = _keys(settings, key)
    failed = False
    checks = Doctor(url or settings.server.url, keys, model or "").examine()
    for check in chain(checks, _engine(settings)):
        say(str(check))
        failed = failed or check.state == "failed"
    return int(failed)


def _engine(settings: Settings) -> Iterator[Check]:
    """Whether the server at engine.url answers, where there is one."""
    url = settings.engine.url
    if settings.engine.kind == "embedded" or not url:
        return
    server = server_at(settings, url, settings.engine.api_key.get_secret_value())

    async def look() -> str:
        try:
            length, loaded = await server.context_length(), len(await server.adapters())
        finally:
            await server.close()
        return f"{server.name} at {url} answers, context of {length} tokens, {loaded} adapters loaded"

    try:
        yield Check("engine", "ok", asyncio.run(look()))
    except EngineError as error:
        yield Check("engine", "failed", str(error), "start it, or give the right --engine-url")


def _keys(settings: Settings, key: str | None) -> dict[str, str]:
    """The headers that show who asks: in front of an upstream, `key` is its own and ours has another."""
    ours = next((given.get_secret_value() for given in settings.server.api_keys), "")
    if settings.upstream.url:
        shown = {"Authorization": f"Bearer {key}" if key else "", KEY_HEADER: ours}
    else:
        shown = {"Authorization": f"Bearer {key or ours}" if key or ours else ""}
    return {header: value for header, value in shown.items() if value}


def _process(name: str, processes: dict[str, Any]) -> Check:
    said = processes.get(name)
    if said is None:
        return Check(
            name, "failed", "has never run on this store", "run `openclaw-rl up`, or `learn` beside it"
        )
    facts = ", ".join(f"{key} {value}" for key, value in said["detail"].items())
    found = f"{said['phase']}, {said['said_seconds_ago']:.0f} s ago" + (f" ({facts})" if facts else "")
    if said["phase"] == "stopped":
        return Check(name, "failed", found, "run `openclaw-rl up`, or `learn` beside the server")
    if said["phase"] == "failing":
        return Check(name, "failed", found, "check judge.kind, and that the judge can be reached")
    return Check(name, "ok", found)


def _read(response: httpx2.Response) -> dict[str, Any]:
    if response.status_code != 200:
        raise _refusal(response)
    body: dict[str, Any] = response.json()
    return body


def _refusal(response: httpx2.Response) -> _FailedError:
    try:
        words = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError):
        words = "in a form that is not ours"
    fix = {
        401: "give a key of the server with --api-key, or in server.api_keys",
        404: "is it our server? give the right --url",
        429: "it is busy; try again later, or raise engine.max_concurrent",
        503: "wait until the model is loaded, or see the server's log",
    }.get(response.status_code, "see the server's log")
    return _FailedError(f"HTTP {response.status_code}: {words}", fix)
