# Every target sets itself up: the first call makes .venv, later ones find it ready.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
READY := $(VENV)/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
# How PyTorch is installed. Without an NVIDIA GPU the build of its own index is wanted, which has no CUDA and
# is 4 GB smaller; where that index cannot be reached, whatever pip finds is taken.
CPU_INDEX := --retries 0 --index-url https://download.pytorch.org/whl/cpu
HAS_GPU := $(shell command -v nvidia-smi)
TORCH_FLAGS ?=
DEMO_ARGS ?=

# PyTorch's threads sleep at barriers instead of spinning; two processes share these cores.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-slow check format lint types clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV): PyTorch and some other packages; a few minutes the first time"
	$(if $(TORCH_FLAGS)$(HAS_GPU),,$(PIP) $(CPU_INDEX) '$(TORCH)' 2>/dev/null ||) $(PIP) $(TORCH_FLAGS) '$(TORCH)'
	$(PIP) -c constraints.txt -e '.[local,demo,dev]'
	touch $@

demo: $(READY)
	$(BIN)/openclaw-rl demo $(DEMO_ARGS)

test: $(READY)
	$(BIN)/pytest

test-slow: $(READY)
	$(BIN)/pytest -m slow

check: format lint types test

format: $(READY)
	$(BIN)/ruff format .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis
