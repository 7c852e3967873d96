# Two commands matter: `make run` and `make test`. GNU make 3.81 syntax (macOS ships that).
PY ?= python3
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
# What takes seconds and goes deeper is for CI (REQUIRE_SERVICES=1), or for THOROUGH=1.
SUITE := $(if $(THOROUGH)$(REQUIRE_SERVICES),--thorough)
# The tests on all cores; CORES= runs them in one process, for a debugger.
CORES ?= --numprocesses=auto --dist=worksteal

.DEFAULT_GOAL := help
.PHONY: help run serve test suite check fix bench fuzz openapi lock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

run: $(VENV)/.ready ## install, prepare a demonstration and serve on 127.0.0.1:$(PORT) until Ctrl-C
	@exec $(BIN)/python manage.py serve --demo --port $(PORT)

serve: $(VENV)/.ready ## serve without the demonstration
	@exec $(BIN)/python manage.py serve --port $(PORT)

test: $(VENV)/.ready-dev ## run every check and the tests; THOROUGH=1 also what takes long
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest $(CORES) $(SUITE) $(ARGS)

suite: $(VENV)/.ready-dev ## the tests alone; ARGS="tests/api -k append" chooses
	@$(BIN)/python -m pytest $(CORES) $(SUITE) $(ARGS)

check: $(VENV)/.ready-dev ## the checks alone: lint, format, types, import contracts, migrations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run

fix: $(VENV)/.ready-dev ## repair what can be repaired by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-bench ## benchmarks: one JSON object a line; ARGS="flat_cost" chooses
	@$(BIN)/python -m tests.benchmarks $(ARGS)

fuzz: $(VENV)/.ready-dev ## 20,000 calls made from the OpenAPI document, every check on; ARGS="--calls 2000" for fewer
	@$(BIN)/python -m tests.fuzz $(ARGS)

openapi: $(VENV)/.ready ## write docs/openapi.yaml anew, after a change of the API
	@$(BIN)/python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

lock: $(VENV)/.ready-dev ## pin requirements*.in into requirements*.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/lock_requirements.py

$(VENV)/bin/python:
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PY) is `$(PY) --version 2>&1`. Name another: make run PY=python3.12"; exit 1; }
	@$(PY) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "making a virtual environment in $(VENV) …"
	@$(PY) -m venv $(VENV)

$(VENV)/.ready: $(VENV)/bin/python requirements.txt
	@echo "installing what is needed to run (about a minute the first time) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.txt
	@echo "installing what the tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-dev requirements-bench.txt
	@echo "installing what the benchmarks compare with …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	@touch $@

clean: ## remove the virtual environment and the local database
	rm -rf $(VENV) var
