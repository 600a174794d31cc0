"""A data folder that one model has learned in is refused to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ground_nouns import add_sample, an_update

pytest.importorskip("torch")

from dataclasses import replace

from openclaw_rl.config import ConfigError, Settings
from openclaw_rl.processes.same_model import refuse_other_model
from openclaw_rl.store import Store


def test_what_one_model_has_learned_is_kept_from_another(store: Store, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"model": "tiny"}), encoding="utf-8")
    settings = Settings.model_validate({"data_dir": tmp_path, "model": {"name": "models/other"}})
    refuse_other_model(store, settings)  # nothing is learned yet
    done, version = an_update(1, add_sample(store))
    store.learning.record_update(done, replace(version, path=str(tmp_path)))
    with pytest.raises(ConfigError, match="holds what tiny has learned; choose another --data-dir for other"):
        refuse_other_model(store, settings)
    refuse_other_model(store, Settings.model_validate({"model": {"name": "models/tiny"}}))
