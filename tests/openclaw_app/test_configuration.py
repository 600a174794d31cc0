"""What we print and ship for OpenClaw, as OpenClaw itself sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from real_openclaw import MODULES, NODE, OpenClaw
from running_processes import House
from snippet import connect

from openclaw_rl.connect.openclaw import plugin_folder

pytestmark = pytest.mark.openclaw


def test_the_printed_configuration_is_valid_and_can_be_undone(openclaw: OpenClaw, house: House) -> None:
    before = openclaw.read_configuration()
    patch, remarks = connect(f"{house.url}/v1")
    openclaw.apply(patch)
    assert "valid" in openclaw.command("config", "validate").lower()
    applied = openclaw.read_configuration()
    (model,) = applied["models"]["providers"]["openclaw-rl"]["models"]
    assert model["contextWindow"] == 8192

    (undo,) = (line for line in remarks.splitlines() if "openclaw config patch --stdin" in line)
    taken_out = json.loads(undo.split("'")[1])
    taken_out["agents"]["defaults"]["model"]["primary"] = None  # it had none
    openclaw.apply(taken_out)
    after = openclaw.read_configuration()
    for of_openclaw in (before, after):
        of_openclaw.pop("meta", None)  # which version wrote it, and when
    assert _without_empty(after) == _without_empty(before)


def _without_empty(tree: dict) -> dict:
    """The same without the empty objects that unsetting leaves behind."""
    kept = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in tree.items()}
    return {name: value for name, value in kept.items() if value != {}}


def test_the_plugin_fits_the_types_of_the_installed_openclaw(tmp_path: Path) -> None:
    folder = plugin_folder()
    assert folder is not None
    copy = tmp_path / "plugin"
    shutil.copytree(folder, copy)
    (copy / "node_modules").symlink_to(MODULES)
    checked = _check_types(copy)
    assert checked.returncode == 0, checked.stdout
    # The check can fail: the types are really those of the app.
    index = copy / "index.ts"
    index.write_text(
        index.read_text(encoding="utf-8").replace("context.runId", "context.noSuchThing"), "utf-8"
    )
    assert "noSuchThing" in _check_types(copy).stdout


def _check_types(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), str(MODULES / "typescript" / "bin" / "tsc"), "-p", str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
