"""docs/architecture.md and the imports say the same: each folder knows what its row names, and no more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import openclaw_rl

SOURCE = Path(openclaw_rl.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"


def imported_by(file: Path) -> Iterator[str]:
    """The folders and files of ours that it imports from, by name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{name.name}" for name in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == openclaw_rl.__name__ and rest:
                yield rest.split(".")[0]


def known() -> dict[str, set[str]]:
    found = {}
    for place in SOURCE.iterdir():
        if place.name.startswith("__") or not (place.is_dir() or place.suffix == ".py"):
            continue
        files = place.rglob("*.py") if place.is_dir() else [place]
        names = {name for file in files for name in imported_by(file)}
        shown = f"{place.name}/" if place.is_dir() else place.name
        found[shown] = names - {place.stem, "__version__"}
    return found


def test_the_table_of_folders_names_each_with_what_it_imports() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split("## The folders\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines()[2:] if line.startswith("|")]
    listed = {re.findall("`(.+?)`", name)[0]: set(re.findall("`(.+?)`", knows)) for name, _, knows in rows}
    assert listed == known()
