# Two commands on a fresh machine with Python 3.11 or newer:
#   make plan   installs outlay into .venv and plans the bundled StyleNAT example
#   make test   installs what the checks need and runs every one of them
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# SkyPilot wants older versions of click and uvicorn than the tests do: it has an environment of its own.
SKY    := .venv-skypilot
# The CPU build is enough: steps are traced on fake tensors.
TORCH  ?= torch==2.13.0
SKIPS  ?= allow
# Tests that wait for servers, processes and windows of time run beside those that compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: house plan test check lint types imports pytest bench services docs profiles calibrate clean

plan: $(VENV)/.core
	@$(BIN)/outlay plan examples/stylenat.toml --prices bundled

test: check pytest

check: lint types imports

lint: $(VENV)/.checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.checks
	$(BIN)/mypy

imports: $(VENV)/.checks
	$(BIN)/lint-imports

pytest: $(VENV)/.tests $(SKY)/.installed
	OUTLAY_TEST_SKIPS=$(SKIPS) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
	  --no-loadscope-reorder $(PYTEST_ARGS)

# The tree in figures: modules, lines, layers, names used twice.
house: $(VENV)/.core
	@$(BIN)/python tools/house.py

bench: $(VENV)/.core
	$(BIN)/python tools/bench.py

# Real servers for the tests that need them, from Debian's packages (as root).
services:
	bash tools/services.sh

# The command reference and the JSON schemas, generated from the program itself; then the site.
docs: $(VENV)/.docs
	$(BIN)/python tools/build_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is build/site/index.html" >&2

# The bundled profiles, traced anew from examples/, and those of models' recipes that are missing
# (needs torch); `tools/build_model_profiles.py NAME ...` traces some of these anew.
profiles: $(VENV)/.tests
	$(BIN)/python tools/build_profiles.py
	$(BIN)/python tools/build_model_profiles.py

# The numbers of each kind of kernel, fitted anew: DATA="file ..." of measured operations, as
# tools/measure_operations.py takes them on a GPU; without DATA, on our own H200 measurements.
calibrate: $(VENV)/.core
	$(BIN)/python tools/calibrate.py --write $(if $(DATA),--data $(DATA))

$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "outlay needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing outlay into $(VENV) ..." >&2
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.checks: $(VENV)/.core
	@$(PIP) --group check
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@$(PIP) --group docs
	@touch $@

$(VENV)/.tests: $(VENV)/.core
	@echo "Installing what the tests need into $(VENV) ..." >&2
	@$(PIP) --group test
	@$(PIP) $(TORCH) numpy || echo "torch could not be installed: tests that need it are skipped" >&2
	@$(PIP) --no-deps --group frameworks-alone && $(PIP) $(TORCH) --group frameworks || \
	  echo "Not all frameworks could be installed: tests that need them are skipped" >&2
	@touch $@

$(SKY)/.installed: pyproject.toml
	@echo "Installing SkyPilot into $(SKY) ..." >&2
	@test -x $(SKY)/bin/python || $(PYTHON) -m venv $(SKY)
	@$(SKY)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable ".[skypilot]" || \
	  echo "SkyPilot could not be installed: tests that need it are skipped" >&2
	@touch $@

clean:
	rm -rf $(VENV) $(SKY) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
