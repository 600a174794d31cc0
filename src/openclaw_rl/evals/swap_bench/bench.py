"""Starts the server, lets the traffic run, has every reply verified, and says what was found."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from openclaw_rl import config
from openclaw_rl.evals import provenance
from openclaw_rl.evals.own_server import own_server
from openclaw_rl.evals.random_versions import RandomVersions
from openclaw_rl.evals.results import write
from openclaw_rl.evals.serve_bench import endless
from openclaw_rl.evals.serve_bench.plan import SERVED, Steps
from openclaw_rl.evals.swap_bench.traffic import Seen, Traffic
from openclaw_rl.evals.swap_bench.verify import TOLERANCES, Verified, verify
from openclaw_rl.model import Turn
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.store import Store

_WANTED = {
    "chats": "",
    "swaps": "",
    "errors": "0",
    "not_recorded": "0",
    "mixed_versions": "0",
    "indistinguishable": "0",
    "across_a_swap": "above 0",
    "largest_difference": "far below nearest_other_version",
    "nearest_other_version": "",
    "longest_gap_s": "below 1",
}
"""The numbers that are shown; docs/performance.md says what each means."""

_MUST_BE_NONE = {
    "errors": "chats that ended in an error",
    "not_recorded": "replies that the store has not, or under another version than the client was told",
    "mixed_versions": "replies that are not of the version that they name",
    "indistinguishable": "replies that the version before or after would have given as well",
}


def run(
    flags: Mapping[str, Any], *, chats: int, swaps: int, clients: int, tokens: int, json_file: Path | None
) -> bool:
    """Measure and show it, with settings `flags` by dotted name; says whether nothing was wrong."""
    commit = provenance.commit()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    steps = Steps(console)
    flags = {"model.dtype": "float32", **flags}
    settings, _ = config.load(None, dict(flags))
    folder = model_files.resolve(settings.model.name, lambda text: console.print(text, markup=False))
    versions = RandomVersions(folder, settings.learn)
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as scratch, ExitStack() as running:
        # Of a reply of one token or two, other versions might think the same.
        model_folder = endless.make(folder, Path(scratch) / "model")
        serving = {**flags, "model.name": str(model_folder), "model.served_name": SERVED}
        console.print("starting the server")
        server = running.enter_context(own_server(serving, Path(scratch) / "server.log"))
        store = running.enter_context(closing(Store.open(server.folder / "store.sqlite")))
        traffic = Traffic(server, store, versions, chats, swaps, clients, tokens)
        with steps.part("talking", chats):
            seen = asyncio.run(traffic.run(steps))
        recorded = [recorded_turn(store, reply.headers) for reply in seen.replies]
    turns = [turn for turn in recorded if turn is not None]
    device = model_files.choose_device(settings.model.device)
    dtype = model_files.choose_dtype(settings.model.dtype, device)
    network = Network.load(folder, dtype=dtype, device=device, adapter_targets=settings.learn.lora_targets)
    with steps.part("computing every reply again under the version that it names", swaps + 1):
        found = verify(network, turns, versions.adapter, swaps, steps.done)
    result = {
        **summary(seen, found, TOLERANCES[dtype], not_recorded=recorded.count(None)),
        "tokens": tokens,
        "clients": clients,
        "dtype": str(dtype).removeprefix("torch."),
        "model": settings.served_name,
        "commit": commit,
        "machine": provenance.machine(),
    }
    _show(result, console)
    if json_file is not None:
        write(json_file, result)
        console.print(f"written to {json_file}", markup=False)
    return not wrong(result)


def recorded_turn(store: Store, headers: Mapping[str, str]) -> Turn | None:
    """The turn that a reply's headers name, if it is there under the version that they name."""
    turn = store.conversations.turn(headers["x-turn-id"])
    return turn if turn is not None and str(turn.policy_version) == headers["x-policy-version"] else None


def summary(seen: Seen, found: Sequence[Verified], tolerance: float, *, not_recorded: int) -> dict[str, Any]:
    """The numbers. A reply is of mixed versions when its log-probs are not its version's, and
    indistinguishable when they are as well those of the version before or after."""
    others = [one.other for one in found if one.other is not None]
    return {
        "chats": seen.chats,
        "swaps": len(seen.served_at),
        "errors": len(seen.errors),
        "not_recorded": not_recorded,
        "mixed_versions": sum(one.own > tolerance for one in found),
        "longest_gap_s": round(seen.longest_gap_seconds, 3),
        "replies": len(found),
        "across_a_swap": seen.across_a_swap,
        "under_other_versions": len(others),
        "indistinguishable": sum(other <= tolerance for other in others),
        "largest_difference": max((one.own for one in found), default=0.0),
        "nearest_other_version": min(others, default=0.0),
        "tolerance": tolerance,
        "first_errors": seen.errors[:5],
    }


def wrong(result: Mapping[str, Any]) -> list[str]:
    """Why the command ends with status 1; nothing if it does not."""
    said = [f"{what}: {result[name]}" for name, what in _MUST_BE_NONE.items() if result[name]]
    return said if result["replies"] else [*said, "no reply was there to be computed again"]


def _show(result: Mapping[str, Any], console: Console) -> None:
    table = Table("number", "found", "wanted", box=None)
    for name, wanted in _WANTED.items():
        found = result[name]
        table.add_row(name, f"{found:.2g}" if isinstance(found, float) else str(found), wanted)
    console.print(table)
    console.print(
        f"{result['replies']} replies; a log-prob may differ by {result['tolerance']}",
        markup=False,
    )
    for error in result["first_errors"]:
        console.print(f"error: {error}", markup=False)
    if said := wrong(result):
        console.print(f"wrong: {'; '.join(said)}", markup=False)
