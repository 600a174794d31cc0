# Every target sets itself up: the first call makes .venv, later ones find it ready.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
# For example --index-url https://download.pytorch.org/whl/cpu, to have PyTorch without CUDA.
TORCH_FLAGS ?=
DEMO_ARGS ?=

# PyTorch's threads sleep at barriers instead of spinning; two processes share these cores.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-slow check format lint types clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH_FLAGS) '$(TORCH)'
	$(BIN)/pip install --quiet -c constraints.txt -e '.[local,demo,dev]'
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
