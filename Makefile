# What a contributor runs. Each target makes the environment it needs; nothing is installed outside .venv.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REPORT := build/junit.xml
PYTEST = $(BIN)/pytest -n 2 --dist loadgroup --junitxml=$(REPORT)

.DEFAULT_GOAL := help
.PHONY: help demo test check nightly bench docs mutants clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile

demo: $(STAMP) ## run the main job on real processes and an embedded PostgreSQL
	$(BIN)/wakeful demo

test: $(STAMP) ## the tests, without the slow proofs
	@mkdir -p $(dir $(REPORT))
	$(PYTEST) -m "not nightly and not power_loss"
	$(BIN)/python .ci/skips.py $(REPORT) .ci/allowed-skips

check: $(STAMP) ## style, types, import contracts, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/docs

nightly: $(STAMP) ## the slow proofs; the power cut needs root
	@mkdir -p $(dir $(REPORT))
	$(BIN)/pytest -m "nightly or power_loss" --junitxml=$(REPORT)

bench: $(STAMP) ## measure this machine
	$(BIN)/python bench/run.py

docs: $(STAMP) ## the documentation's own tests
	$(BIN)/pytest -q tests/docs

mutants: $(STAMP) ## break the code in known ways; each break must turn a test red
	$(BIN)/python tests/mutations/run.py

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml .ci/environment
	@.ci/environment $(VENV)
	@touch $@
