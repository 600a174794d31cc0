"""A version on disk: what is restored is what was saved, and what is damaged or foreign is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from judged_samples import a_trainer, same, some_samples, weights_of
from learnable_model import MODEL, load_network, write_model
from safetensors.torch import load_file, save_file

from openclaw_rl.config import ConfigError, LearnSettings
from openclaw_rl.learn import checkpoint
from openclaw_rl.learn.batch import student
from openclaw_rl.learn.checkpoint import MANIFEST_FILE, OPTIMISER_FILE, CheckpointError
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.model import Sample
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.adapter import CONFIG_FILE, WEIGHTS_FILE, Adapter
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.policy.embedded.version_files import MODEL_FILE


@pytest.fixture(scope="module")
def samples(network: Network, template: ChatTemplate) -> list[Sample]:
    return some_samples(network, template)


@pytest.fixture
def trainer(network: Network, template: ChatTemplate, samples: list[Sample]) -> Trainer:
    """A trainer after two steps, so that both factors have moved."""
    made = a_trainer(network, template)
    made.step(samples)
    made.step(samples)
    return made


def save(trainer: Trainer, model_folder: Path, versions: Path, number: int = 1) -> Path:
    return checkpoint.save(trainer, model_folder, MODEL, versions, number)[0]


def test_a_restored_trainer_goes_on_exactly_where_the_saved_one_was(
    trainer: Trainer,
    network: Network,
    template: ChatTemplate,
    model_folder: Path,
    samples: list[Sample],
    tmp_path: Path,
) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    restored = a_trainer(network, template, seed=99)
    checkpoint.restore(restored, folder, MODEL)
    assert same(weights_of(restored), weights_of(trainer))
    expected, found = trainer.step(samples), restored.step(samples)
    assert found["loss"] == expected["loss"]
    assert same(weights_of(restored), weights_of(trainer))


def test_restoring_forgets_what_the_trainer_did_meanwhile(
    trainer: Trainer, model_folder: Path, samples: list[Sample], tmp_path: Path
) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    trainer.step(samples)
    expected = weights_of(trainer)
    trainer.step(samples)
    checkpoint.restore(trainer, folder, MODEL)
    trainer.step(samples)
    assert same(weights_of(trainer), expected)


def test_a_version_saved_before_any_step_can_be_restored(
    network: Network, template: ChatTemplate, model_folder: Path, samples: list[Sample], tmp_path: Path
) -> None:
    fresh, other = a_trainer(network, template), a_trainer(network, template, seed=5)
    other.step(samples)
    checkpoint.restore(other, save(fresh, model_folder, tmp_path / "versions"), MODEL)
    fresh.step(samples)
    other.step(samples)
    assert same(weights_of(other), weights_of(fresh))


def test_reset_is_version_zero_again(network: Network, template: ChatTemplate, samples: list[Sample]) -> None:
    trainer, fresh = a_trainer(network, template), a_trainer(network, template)
    initial = weights_of(trainer)
    trainer.step(samples)
    checkpoint.reset(trainer, initial)
    assert same(weights_of(trainer), initial)
    trainer.step(samples)
    fresh.step(samples)
    assert same(weights_of(trainer), weights_of(fresh))


def test_the_folder_is_named_by_its_number_and_its_manifest_tells_its_hash(
    trainer: Trainer, model_folder: Path, tmp_path: Path
) -> None:
    folder, digest = checkpoint.save(trainer, model_folder, MODEL, tmp_path / "versions", 12)
    assert folder == tmp_path / "versions" / "000012"
    manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    assert manifest == {
        "version": 12,
        "model": MODEL,
        "weights": WEIGHTS_FILE,
        "sha256": digest,
        "reward_baseline": 0.0,
    }
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["000012"]


def test_an_adapter_is_saved_as_peft_names_it_and_loads_as_the_server_loads_it(
    trainer: Trainer, network: Network, model_folder: Path, tmp_path: Path
) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    names = load_file(folder / WEIGHTS_FILE).keys()
    assert "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight" in names
    assert "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight" in names
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8)
    assert config["target_modules"] == sorted(LearnSettings().lora_targets)
    served = Adapter.load(folder, network.adapted)
    assert trainer.adapter is not None
    assert (served.rank, served.scale) == (4, trainer.adapter.scale)
    assert same(served.tensors(), weights_of(trainer))


def test_leftovers_of_a_killed_learner_are_replaced(
    trainer: Trainer, network: Network, template: ChatTemplate, model_folder: Path, tmp_path: Path
) -> None:
    versions = tmp_path / "versions"
    for name in ("000001", ".000001.writing"):
        (versions / name).mkdir(parents=True)
        (versions / name / "garbage").write_bytes(b"half a file")
    folder = save(trainer, model_folder, versions)
    assert [path.name for path in versions.iterdir()] == ["000001"]
    assert not (folder / "garbage").exists()
    restored = a_trainer(network, template)
    checkpoint.restore(restored, folder, MODEL)
    assert same(weights_of(restored), weights_of(trainer))


def flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS_FILE).read_bytes())
    content[-5] ^= 0x40
    (folder / WEIGHTS_FILE).write_bytes(content)


def cut(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    return damage


def without_a_layer(folder: Path) -> None:
    """A whole file, hash and all, of a model with other layers."""
    tensors = load_file(folder / WEIGHTS_FILE)
    tensors.pop("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight")
    replace_weights(folder, tensors)


def with_infinity(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_FILE)
    next(iter(tensors.values()))[0, 0] = float("inf")
    replace_weights(folder, tensors)


def replace_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / WEIGHTS_FILE)
    manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    manifest["sha256"] = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit of the weights": flip_a_byte,
    "half the weights": cut(WEIGHTS_FILE),
    "no weights": remove(WEIGHTS_FILE),
    "half the optimiser": cut(OPTIMISER_FILE),
    "no optimiser": remove(OPTIMISER_FILE),
    "half the manifest": cut(MANIFEST_FILE),
    "no manifest": remove(MANIFEST_FILE),
    "an empty manifest": write(MANIFEST_FILE, "{}"),
    "a manifest that is a list": write(MANIFEST_FILE, "[]"),
    "no adapter config": remove(CONFIG_FILE),
    "an adapter config without rank": write(CONFIG_FILE, "{}"),
    "a layer missing": without_a_layer,
    "infinite weights": with_infinity,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_version_is_refused_and_changes_nothing(
    trainer: Trainer,
    network: Network,
    template: ChatTemplate,
    model_folder: Path,
    samples: list[Sample],
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    damage(folder)
    restored, untroubled = a_trainer(network, template), a_trainer(network, template)
    with pytest.raises((CheckpointError, ConfigError), match="000001"):
        checkpoint.restore(restored, folder, MODEL)
    restored.step(samples)
    untroubled.step(samples)
    assert same(weights_of(restored), weights_of(untroubled))


def test_a_version_of_another_model_is_refused(trainer: Trainer, model_folder: Path, tmp_path: Path) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    with pytest.raises(ConfigError, match=f"of {MODEL}, not of other"):
        checkpoint.restore(trainer, folder, "other")


@pytest.mark.parametrize(
    "settings",
    [{"lora_rank": 8}, {"lora_rank": 8, "lora_alpha": 16}, {"lora_alpha": 16}],
    ids=["another rank", "another rank of the same scale", "another alpha"],
)
def test_a_version_trained_with_other_adapter_settings_is_refused(
    trainer: Trainer,
    network: Network,
    template: ChatTemplate,
    model_folder: Path,
    tmp_path: Path,
    settings: dict[str, int],
) -> None:
    folder = save(trainer, model_folder, tmp_path / "versions")
    other = a_trainer(network, template, **settings)
    before = weights_of(other)
    with pytest.raises(ConfigError, match=r"other settings .* set those of learn\.\* back"):
        checkpoint.restore(other, folder, MODEL)
    assert same(weights_of(other), before)


def full_trainer(folder: Path, template: ChatTemplate) -> Trainer:
    settings = LearnSettings(full_fine_tuning=True, learning_rate=1e-4)
    trained = load_network(folder, trainable=True, adapted=False)
    return Trainer(trained, template, settings, load_network(folder, adapted=False))


@pytest.mark.parametrize("tied", [False, True])
def test_a_fully_trained_version_is_a_model_folder_and_resumes(
    tied: bool, template: ChatTemplate, samples: list[Sample], tmp_path: Path
) -> None:
    base = write_model(tmp_path / "base", tied=tied)
    trainer = full_trainer(base, template)
    trainer.step(samples)
    folder = save(trainer, base, tmp_path / "versions")
    assert ("lm_head.weight" in load_file(folder / MODEL_FILE)) is not tied

    served = Trainer(load_network(folder), ChatTemplate.load(folder), LearnSettings())
    part = student(0, samples[1])
    torch.testing.assert_close(served.log_probs([part])[0], trainer.log_probs([part])[0])

    restored = full_trainer(base, template)
    checkpoint.restore(restored, folder, MODEL)
    assert same(weights_of(restored), weights_of(trainer))
    trainer.step(samples)
    restored.step(samples)
    assert same(weights_of(restored), weights_of(trainer))


def test_a_version_that_lacks_one_weight_changes_none(
    template: ChatTemplate, model_folder: Path, tmp_path: Path
) -> None:
    tied = full_trainer(write_model(tmp_path / "tied", tied=True, seed=7), template)
    folder = save(tied, model_folder, tmp_path / "versions")
    untied = full_trainer(model_folder, template)
    before = weights_of(untied)
    with pytest.raises(ConfigError, match=r"lm_head\.weight does not fit"):
        checkpoint.restore(untied, folder, MODEL)
    assert same(weights_of(untied), before)


def test_an_adapter_and_a_whole_model_do_not_take_each_others_versions(
    trainer: Trainer, template: ChatTemplate, model_folder: Path, tmp_path: Path
) -> None:
    whole = full_trainer(model_folder, template)
    of_adapter = save(trainer, model_folder, tmp_path / "versions", 1)
    of_whole = save(whole, model_folder, tmp_path / "versions", 2)
    with pytest.raises(ConfigError, match="other settings"):
        checkpoint.restore(whole, of_adapter, MODEL)
    with pytest.raises(ConfigError, match="other settings"):
        checkpoint.restore(trainer, of_whole, MODEL)
