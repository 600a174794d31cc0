"""Which policy versions an inference server holds: loaded under names of their own, tested, unloaded.

Each load has a name that is never used twice, so nothing that the server keeps under a name can be of other
weights. Requests know the name of a load only once it has passed its test. A version has a folder that stays
as long as any of its names is known. Knows no requests but how many there are.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openclaw_rl.model import PolicyVersion
from openclaw_rl.policy.embedded.version_files import reading
from openclaw_rl.policy.engine import EngineError, UnknownVersionError
from openclaw_rl.policy.remote.adapter_files import AdapterFiles, ModelShape, no_change
from openclaw_rl.policy.remote.server import InferenceServer
from openclaw_rl.policy.remote.trial import Trial

KEPT_NAMED = 2
"""Versions that requests named which stay loaded between two of them."""
PREFIX = "openclaw-rl-"
CLOSE_SECONDS = 3.0
"""For unloading everything at the end; what stays is unloaded by our next start."""

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Served:
    """A version on the server."""

    number: int
    adapter: str | None = None
    """The load that passed its test; None is the base model."""
    folder: Path | None = None
    """Of the adapter's files; None is the base model without one."""
    is_felt: bool = False
    in_use: int = 0
    """Requests that have begun and not ended."""
    restored: int = 0
    """How often it was loaded again."""
    restoring: asyncio.Lock = field(default_factory=asyncio.Lock)


class Versions:
    def __init__(self, server: InferenceServer, shape: ModelShape, home: Path) -> None:
        """`home` is the data folder."""
        self._server = server
        self._shape = shape
        self._home = home
        self._folder = home / "served"
        self.trial = Trial(server, shape.vocabulary)
        self._base = self.serving = Served(0)
        self._loaded = {0: self._base}
        self._named: list[int] = []
        self._left_folders: list[Path] = []
        self._untested: list[str] = []
        """Loads that failed, which the server may have all the same."""
        self._run = secrets.token_hex(4)
        self._loads = itertools.count(1)
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Test the base model, and that adapters can be loaded. Raises EngineError where the server cannot be
        used as it is."""
        await self.trial.base()
        for adapter, folder in (await self._server.adapters()).items():
            if adapter.startswith(PREFIX) and folder.startswith(str(self._folder)):
                await self._server.unload(adapter)  # an earlier process of ours left it
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        unchanged = await self._load(0, self._write_no_change, is_felt=False)
        if self._server.mixes_base:
            # So no request is without an adapter.
            self._base.adapter, self._base.folder = unchanged.adapter, unchanged.folder
        else:
            await self._unload(unchanged)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        loaded = [each.adapter for each in self._loaded.values() if each.adapter is not None]
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                # It may be going away too.
                unloading = [self._server.unload(each) for each in (*loaded, *self._untested)]
                await asyncio.gather(*(self._quietly(each, logging.INFO) for each in unloading))
        except TimeoutError:
            log.info("adapters stay loaded: %s does not answer", self._server.name)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def served(self, number: int | None) -> Served:
        """The version of that number, or the serving one. Raises UnknownVersionError."""
        served = self.serving if number is None else self._loaded.get(number)
        if served is None:
            raise UnknownVersionError(f"policy version {number} is not loaded")
        return served

    async def publish(self, version: PolicyVersion, *, serve: bool) -> None:
        """See `PolicyEngine.publish`."""
        async with self._changing:
            served = self._loaded.get(version.number)
            if served is None:
                served = self._loaded[version.number] = await self._read_and_load(version)
            if serve:
                self.serving = served
            else:
                self._named = [*(each for each in self._named if each != served.number), served.number]
            await self._unload_spare()

    async def restore(self, served: Served, seen: int) -> None:
        """Load a version again that the server has forgotten; once for all requests that found it missing.

        `seen` is `served.restored` as it was when such a request began.
        """
        async with served.restoring:
            if served.restored == seen:
                log.warning("%s has forgotten version %d; loading it again", self._server.name, served.number)
                await self._bring_up(served)
                served.restored += 1

    def begin(self, served: Served) -> None:
        served.in_use += 1

    def end(self, served: Served) -> None:
        """A request has ended; with the last one an old version goes."""
        served.in_use -= 1
        if not served.in_use and served is not self.serving:
            self._in_background(self._tidy())

    async def _read_and_load(self, version: PolicyVersion) -> Served:
        with reading(version):
            files = await asyncio.to_thread(AdapterFiles.read, self._home, version, self._shape)

        def write(folder: Path) -> None:
            with reading(version):
                files.link(folder)

        return await self._load(version.number, write, is_felt=files.is_felt)

    async def _load(self, number: int, write: Callable[[Path], None], *, is_felt: bool) -> Served:
        """In a folder of its own, and tested; nothing is left of one that fails. `write` fills the folder."""
        folder = self._folder / self._new_name(number)
        served = Served(number, folder=folder, is_felt=is_felt)
        await asyncio.to_thread(write, folder)
        try:
            await self._bring_up(served)
        except BaseException:
            self._left_folders.append(folder)
            raise
        return served

    def _new_name(self, number: int) -> str:
        return f"{PREFIX}{self._run}-{next(self._loads)}-v{number}"

    def _write_no_change(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        no_change(self._shape).save(folder, "base")

    async def _bring_up(self, served: Served) -> None:
        """Load it and test it; what fails has no name that requests know, and is unloaded. Raises
        BadVersionError and EngineError."""
        if served.folder is None:
            return
        adapter = self._new_name(served.number)
        try:
            await self._server.load(adapter, served.folder)
            await self.trial.of(served.number, adapter, is_felt=served.is_felt)
        except BaseException:
            # Asked now, and once more later: where the answer was lost, the server may still be loading it.
            self._untested.append(adapter)
            self._in_background(self._server.unload(adapter))
            raise
        served.adapter = adapter

    async def _tidy(self) -> None:
        async with self._changing:
            await self._unload_spare()

    async def _unload_spare(self) -> None:
        """Unload what serves no more, was not named lately, and has no request; with `_changing` held."""
        self._named = [each for each in self._named if each in self._loaded][-KEPT_NAMED:]
        kept = {0, self.serving.number, *self._named}
        left, self._left_folders = self._left_folders, []
        untested, self._untested = self._untested, []
        for served in list(self._loaded.values()):
            if served.number not in kept and not served.in_use:
                del self._loaded[served.number]  # no request finds it from here on
                await self._quietly(self._unload(served))
        for adapter in untested:
            await self._quietly(self._server.unload(adapter))
        for folder in left:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _unload(self, served: Served) -> None:
        if served.adapter is not None and served.folder is not None:
            # A request that was cancelled ends in the server a moment later, so its files stay until the next
            # time: a server that has to read them again would fail.
            self._left_folders.append(served.folder)
            await self._server.unload(served.adapter)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None], level: int = logging.WARNING) -> None:
        try:
            await work
        except EngineError as error:
            log.log(level, "an adapter may stay loaded: %s", error)
