# Every target runs from .venv, which `make setup` builds; nothing else needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Idle OpenMP threads that spin cost a busy two-core machine most of its speed.
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test test-fast test-milvus test-lowest package lint types format docs notebooks reliability figures clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Build .venv with everything the project needs

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt torch torchvision
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

browser: ## Install the browser that the page tests drive, where apt is at hand
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1 \
	|| { command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] \
	     && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| echo "No Chromium found: the browser tests will be skipped (install a package named chromium)."

demo: $(STAMP) ## Real images, two models, one page to look at (about 3 minutes on 2 cores)
	$(BIN)/happier demo

test: $(STAMP) browser lint types ## Lint, types and all tests: what CI runs
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=
	@echo "Covered, lines and branches: $$($(BIN)/coverage report --format=total) %"

test-milvus: $(STAMP) ## The search engine against a real Milvus server, in a venv of its own
	MILVUS_SERVER_TESTS=1 $(BIN)/python -m pytest tests/search -k "server or milvus"

test-fast: $(STAMP) ## The tests that are not marked slow
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-lowest: ## The fast tests with the oldest versions that pyproject.toml allows, in a venv of its own
	$(PYTHON) tests/package/lowest_versions.py

package: $(STAMP) ## Build sdist and wheel into dist/, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) tests/package/installed_wheel.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/deptry .

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP) ## Format and fix what can be fixed by machine
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(STAMP) ## Run the notebooks of the documentation anew, and keep their outputs
	OMP_NUM_THREADS=1 $(BIN)/python docs/hooks/notebooks.py

reliability: $(STAMP) ## Kill, pair and damage everything that writes; writes docs/reliability.md
	OMP_NUM_THREADS=1 PYTHONPATH=tests/support $(BIN)/python -m reliability

figures: $(STAMP) browser ## Make the pictures of the documentation anew
	$(BIN)/python docs/figures

clean: ## Remove .venv and everything built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
