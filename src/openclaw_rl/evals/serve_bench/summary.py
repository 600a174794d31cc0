"""From passes to medians, and from medians to the ratios: arithmetic alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from openclaw_rl.evals.serve_bench.measure import Pass

Passes = dict[str, dict[int, list[Pass]]]
"""By contender and by how many replies were made at the same time."""
Part = dict[str, Any]
"""What a part found, as it is written."""


def of_passes(
    found: Passes,
    firsts: Mapping[str, Sequence[float]] | None = None,
    versions: Mapping[str, str] | None = None,
) -> Part:
    """Medians over rounds. `firsts` are the seconds to first tokens of requests made one after another."""
    part: Part = {
        "contenders": {
            name: {str(count): _medians(passes) for count, passes in by_count.items()}
            for name, by_count in found.items()
        }
    }
    if firsts is not None:
        part["first_token_ms"] = {name: _ms(median(seconds)) for name, seconds in firsts.items()}
    if versions is not None:
        part["versions"] = dict(versions)
    return part


def _medians(passes: Sequence[Pass]) -> dict[str, float]:
    medians = {"tokens_per_second": round(median(one.tokens_per_second for one in passes), 2)}
    if firsts := [seconds for one in passes for seconds in one.first_token_seconds]:
        medians["first_token_ms"] = _ms(median(firsts))
        medians["longest_gap_ms"] = _ms(max(one.longest_gap_seconds for one in passes))
    return medians


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def ratios(parts: Mapping[str, Part]) -> dict[str, float]:
    """All that the parts say together; docs/performance.md says what each means."""
    ratios_of: dict[str, Callable[[Part], dict[str, float]]] = {
        "engine": _of_engine,
        "gateway": _of_gateway,
        "vllm": _of_vllm,
        "reuse": _of_reuse,
        "learning": _of_learning,
        "busy": _of_busy,
        "memory": _of_memory,
    }
    return {name: ratio for part, found in parts.items() for name, ratio in ratios_of[part](found).items()}


def _of_engine(part: Part) -> dict[str, float]:
    return {
        **_faster(part, "engine", "generate", "vs_generate"),
        **_faster(part, "engine_lora", "engine", "lora_tokens"),
        **_faster(part, "engine", "products", "of_products"),
        **_faster(part, "products", "generate", "products_vs_generate"),
    }


def _of_gateway(part: Part) -> dict[str, float]:
    by_count = _faster(part, "gateway", "engine", "gateway_tokens")
    most = max(map(int, part["contenders"]["gateway"]))
    first = part["first_token_ms"]
    return {
        **by_count,
        "gateway_tokens": by_count[f"gateway_tokens_{most}"],
        "gateway_first_token_ms": round(first["gateway"] - first["engine"], 1),
    }


def _of_vllm(part: Part) -> dict[str, float]:
    return {
        **_faster(part, "gateway", "vllm", "vs_vllm"),
        **_faster(part, "gateway_lora", "vllm_lora", "vs_vllm_lora"),
    }


def _of_reuse(part: Part) -> dict[str, float]:
    without, with_reuse = (part[how]["first_token_ms"] for how in ("without", "with"))
    name = "reuse_4k" if part["long"] == 4096 else f"reuse_{part['long']}"
    return {name: round(without / with_reuse, 2)}


def _of_learning(part: Part) -> dict[str, float]:
    return {
        "while_learning": round(
            part["learning"]["tokens_per_second"] / part["alone"]["tokens_per_second"], 3
        ),
        "longest_gap_learning_ms": part["learning"]["longest_gap_ms"],
    }


def _of_busy(part: Part) -> dict[str, float]:
    return {
        **_faster(part, "engine_busy", "engine", "busy"),
        **_faster(part, "engine", "sleeping", "vs_sleeping"),
        **_faster(part, "engine_busy", "sleeping_busy", "vs_sleeping_busy"),
    }


def _of_memory(part: Part) -> dict[str, float]:
    # Over the second half: in the first the store of prefixes fills up.
    marks = part["sessions_mb"]
    return {"memory_growth_mb": round(marks[-1][1] - marks[-2][1], 1)} if len(marks) > 1 else {}


def _faster(part: Part, ours: str, others: str, name: str) -> dict[str, float]:
    """Tokens a second of the first as a multiple of the second's, for each number of streams."""
    first, second = part["contenders"][ours], part["contenders"][others]
    return {
        f"{name}_{count}": round(first[count]["tokens_per_second"] / second[count]["tokens_per_second"], 3)
        for count in first
    }
