# What one types in this checkout; `make help` tells. Everything runs in .venv, which is made at the
# first use and brought up to date when pyproject.toml changes. No target installs a system package
# or starts a system service.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SUFFIXES:

VENV := .venv
RUN := $(VENV)/bin/python -m
# The name tells the folder: an environment that was copied along with the checkout is made anew.
READY := $(VENV)/.ready-$(shell pwd -P | cksum | cut -d' ' -f1)

.PHONY: help
help: ## Tell what there is to type.
	@echo 'make TARGET [NAME=VALUE ...]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo 'Names:'
	@echo '  KEEP=1         demo: leave clusters and federate running; clusters-down ends them'
	@echo '  ARGS=...       more for pytest (ARGS="-x -k orphan"), clusters-up (ARGS="--storage kine"), bench, conformance'
	@echo '  PYTHON=...     the Python 3.11 or newer that .venv is made with'

.PHONY: demo
demo: $(READY) ## See a Deployment in a hub run in a target, step by step, in about a minute.
	@$(RUN) e2e.demo $(if $(filter-out 0 no false,$(KEEP)),--keep)

.PHONY: test
test: $(READY) ## Run all tests but the long ones, those of different clusters side by side.
	@$(RUN) e2e.testbed provider
	@$(RUN) pytest -n 3 --dist loadgroup -m 'not long' $(ARGS)

.PHONY: test-long
test-long: $(READY) ## Run the tests that do not fit `make test`.
	@$(RUN) e2e.testbed provider
	@$(RUN) pytest -m long $(ARGS)

.PHONY: bench
bench: $(READY) ## Measure 10, 100, 1,000 pods, and streams, against the same without federate; 75 minutes.
	@$(RUN) e2e.bench --output docs/benchmarks/bench $(ARGS)

.PHONY: bench-streams
bench-streams: $(READY) ## Only exec, logs and port-forward through the hub (kind); twelve minutes.
	@$(RUN) e2e.bench --only streams --output docs/benchmarks/streams $(ARGS)

.PHONY: bench-full
bench-full: $(READY) ## The same with 10,000 pods; four hours, and 8 GB of memory.
	@$(RUN) e2e.bench --n 10000 --standing 10000 --standing-from 1000 \
		--output docs/benchmarks/bench-full $(ARGS)

.PHONY: conformance
conformance: $(READY) ## Run Kubernetes' conformance tests through the node (kind); ARGS="--slice apps"; two hours.
	@$(RUN) e2e.conformance $(ARGS)

.PHONY: check
check: $(READY) ## Check format, lint, types and layers; changes nothing.
	@echo 'Format:' && $(RUN) ruff format --check
	@echo 'Lint:' && $(RUN) ruff check
	@echo 'Types:' && $(RUN) mypy
	@echo 'Layers:' && $(VENV)/bin/lint-imports

.PHONY: coverage
coverage: $(READY) ## Run unit and law tests, and tell of each module which branches they do not reach.
	@$(RUN) coverage run -m pytest -q tests/unit tests/laws $(ARGS)
	@$(RUN) coverage report --show-missing --skip-covered --fail-under=95

.PHONY: format
format: $(READY) ## Format all code, and mend what the linter can mend.
	@$(RUN) ruff format
	@$(RUN) ruff check --fix

.PHONY: clusters-up
clusters-up: $(READY) ## Start a hub and a target that stay; writes kubeconfigs/hub.yaml, target.yaml.
	@$(RUN) e2e.testbed up $(ARGS)

.PHONY: clusters-down
clusters-down: $(READY) ## End them with all that is in them, and a federate that the demo kept.
	@$(RUN) e2e.testbed down

$(READY): pyproject.toml .ci/venv
	@PYTHON='$(PYTHON)' .ci/venv $@
