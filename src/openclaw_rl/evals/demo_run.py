"""What a demo keeps in its folder: settings of the run, evaluations so far, and the files it ends with.

A run that was interrupted is found again by its seed and method and goes on. Knows no server.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openclaw_rl.evals import provenance
from openclaw_rl.evals.held_out import Evaluation

PROGRESS_FILE = "demo.json"


@dataclass(slots=True)
class DemoRun:
    """One run of the demo, from its first start to its last line."""

    folder: Path
    seed: int
    method: str
    updates: int
    seconds: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    ceiling: Evaluation | None = None
    commit: str = field(default_factory=provenance.commit)
    """Of the code that the run was begun with."""

    @property
    def complete(self) -> bool:
        return self.ceiling is not None and any(one.version == self.updates for one in self.evaluations)

    def evaluated(self, version: int) -> bool:
        return any(one.version == version for one in self.evaluations)

    def save(self) -> None:
        """Write the progress, whole or not at all."""
        state = {
            "seed": self.seed,
            "method": self.method,
            "updates": self.updates,
            "seconds": self.seconds,
            "commit": self.commit,
            "evaluations": [one.to_json() for one in self.evaluations],
            "ceiling": self.ceiling.to_json() if self.ceiling else None,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f"{PROGRESS_FILE}.writing"
        aside.write_text(json.dumps(state, indent=1), encoding="utf-8")
        aside.rename(self.folder / PROGRESS_FILE)

    @classmethod
    def load(cls, folder: Path) -> DemoRun:
        state = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
        ceiling = state.pop("ceiling")
        evaluations = [Evaluation.from_json(one) for one in state.pop("evaluations")]
        return cls(
            folder,
            evaluations=evaluations,
            ceiling=Evaluation.from_json(ceiling) if ceiling else None,
            **state,
        )

    def results(self, model: str) -> dict[str, Any]:
        """What `--json` writes: shares by update, the ceiling, and where they come from."""
        return {
            "score": {str(one.version): round(one.score, 4) for one in self.evaluations},
            "style": {str(one.version): round(one.style, 4) for one in self.evaluations},
            "useful": {str(one.version): round(one.useful, 4) for one in self.evaluations},
            "ceiling": round(self.ceiling.score, 4) if self.ceiling else None,
            "held_out_questions": len(self.evaluations[0].replies) if self.evaluations else 0,
            "seconds": round(self.seconds, 1),
            "seed": self.seed,
            "method": self.method,
            "model": model,
            "commit": self.commit,
        }


def open_run(runs: Path, *, seed: int, method: str, updates: int, fresh: bool) -> DemoRun:
    """The newest unfinished run of the same kind under `runs`, else a new one in a folder of its own."""
    if not fresh:
        for folder in sorted(runs.glob(f"*-seed{seed}"), reverse=True):
            if (folder / PROGRESS_FILE).exists():
                run = DemoRun.load(folder)
                if not run.complete and (run.method, run.updates) == (method, updates):
                    return run
    folder = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{method}-seed{seed}"
    return DemoRun(folder, seed, method, updates)
