# Everything a checkout can do. `make` alone explains.
#
# Needed on the machine: Linux on x86_64, Python 3.11, git, make; Maven for the real broker and registry.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# cpu or gpu: which build of vLLM (the lock is requirements/$(EXTRA).txt).
EXTRA ?= cpu
# Empty: torch as PyPI has it, the CUDA build (6 GB with its libraries). "cpu" takes the small build, and needs access
# to PyTorch's own package index.
TORCH_BACKEND ?=
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV ?= $(shell command -v uv || echo .cache/uv/bin/uv)
UV_VERSION := 0.13.9

# Public labelled data for the accuracy tests; without it they are skipped, by name.
ifndef SLOTSTREAM_TEST_DATA
SLOTSTREAM_TEST_DATA := $(abspath $(wildcard ../shared/data))
endif
ifneq ($(SLOTSTREAM_TEST_DATA),)
export SLOTSTREAM_TEST_DATA
endif

# Without byte code every process compiles vLLM's thousands of files again: 14 s of CPU at each engine start.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
READY := .venv/.ready-$(EXTRA)$(addprefix -torch-,$(TORCH_BACKEND))
CODE := schemas operators pipelines deploy tests setup.py
PACKAGES := schemas operators pipelines
LINKS := $(addprefix .cache/types/slotstream/,$(PACKAGES))

.PHONY: help setup demo test unit accuracy bench lint format types stack lock clean

help: ## what you are reading
	@echo "slotstream: typed decisions with probabilities for every record of a Kafka topic"
	@echo
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18
	@echo
	@echo "First time here: make demo. It sets everything up by itself (6.5 GB on disk, a few minutes)."
	@echo "Settings: EXTRA=gpu (vLLM for CUDA), TORCH_BACKEND=cpu (small torch; needs PyTorch's package index),"
	@echo "          KEEP=1 (demo leaves its stack up), ARGS='...' (handed on to the program or to pytest)."

setup: $(READY) $(LINKS) ## create .venv with everything pinned (again: instant)

$(READY): requirements/$(EXTRA).txt requirements/noida-db.txt requirements/overrides.txt setup.py | $(UV)
	test -x $(PY) || $(UV) venv --quiet --no-python-downloads --python $(PYTHON) .venv
	rm -f .venv/.ready-*
ifeq ($(TORCH_BACKEND),)
	$(UV) pip sync --python $(PY) requirements/$(EXTRA).txt requirements/noida-db.txt
else
	# Another torch has other dependencies: resolve again, every version held by the lock.
	$(UV) pip install --python $(PY) --torch-backend $(TORCH_BACKEND) --override requirements/overrides.txt \
		--constraint requirements/$(EXTRA).txt --requirement requirements/dev.in ".[$(EXTRA)]"
endif
	$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	touch $@

# Only where the machine has no uv.
.cache/uv/bin/uv:
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/pip install --quiet uv==$(UV_VERSION)

# mypy cannot follow the import hook of an editable install; these links are where pyproject.toml sends it.
$(LINKS):
	@mkdir -p $(@D)
	@ln -sfn ../../../$(@F) $@

demo: setup ## records through a local Kafka, decided by the real engine (KEEP=1: leave it up)
	$(PY) deploy/demo/demo.py $(if $(KEEP),--keep) $(ARGS)

test: lint types ## lint, types and every test, with the real broker, registry and engine
	$(PY) -m pytest $(ARGS)

unit: setup ## the quick tests: no broker, no registry, no engine
	$(PY) -m pytest -m "not broker and not registry and not engine and not slow" $(ARGS)

accuracy: setup ## accuracy, agreement and speed of the shipped checkpoint, as JSON
	$(PY) tests/bench/accuracy.py $(ARGS)

bench: setup ## records a second from topic to topic, as JSON
	$(PY) tests/bench/pipeline.py $(ARGS)

lint: setup ## ruff: rules and format
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)

format: setup ## ruff: fix what it can
	$(PY) -m ruff check --fix $(CODE)
	$(PY) -m ruff format $(CODE)

types: setup ## mypy --strict
	$(PY) -m mypy --strict $(CODE)

stack: setup ## a Kafka and a schema registry on this machine, until Ctrl-C
	$(PY) deploy/local/stack.py up $(ARGS)

lock: | $(UV) ## resolve requirements/*.txt anew, after a change of setup.py or dev.in
	for extra in cpu gpu; do \
		$(UV) pip compile --quiet setup.py requirements/dev.in --extra $$extra \
			--override requirements/overrides.txt --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
			--no-emit-index-url --no-annotate --custom-compile-command "make lock" \
			--output-file requirements/$$extra.txt; \
	done

clean: ## remove what was built and written (ALL=1: also .venv and what Maven brought)
	rm -rf build dist *.egg-info demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache/types .cache/logs
	find $(PACKAGES) deploy tests -name __pycache__ -type d -prune -exec rm -rf {} +
	$(if $(ALL),rm -rf .venv .cache/local-stack .cache/uv)
