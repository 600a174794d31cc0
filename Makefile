# Every target sets itself up: the first call makes .venv, later ones find it ready.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
READY := $(VENV)/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
# Without an NVIDIA GPU PyTorch's own index is tried first: its build has no CUDA and is 4 GB smaller.
TORCH_FLAGS ?= $(shell command -v nvidia-smi >/dev/null || echo --retries 0 --index-url https://download.pytorch.org/whl/cpu)
DEMO_ARGS ?=

# PyTorch's threads sleep at barriers instead of spinning; two processes share these cores.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-slow check format lint types clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV): PyTorch and some other packages; a few minutes the first time"
	$(if $(TORCH_FLAGS),$(PIP) $(TORCH_FLAGS) '$(TORCH)' 2>/dev/null ||) $(PIP) '$(TORCH)'
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
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
