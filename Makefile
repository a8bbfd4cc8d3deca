# Every target sets itself up; nothing but git, make and Python >= 3.10 (with venv) is needed beforehand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all check bench clean

demo: $(VENV)/.ready
	@$(BIN)/tunedeck demo

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow"

test-all: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m slow

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_house.py

bench: $(VENV)/.ready-dev
	$(BIN)/python -m tests.bench.start --bar
	$(BIN)/python -m tests.bench.rollback --bar
	$(BIN)/python -m tests.bench.snapshot --bar
	$(BIN)/python -m tests.bench.triage --bar
	$(BIN)/python -m tests.bench.chaos --bar
	$(BIN)/python -m tests.bench.fleet --bar
	$(BIN)/python -m tests.bench.links --bar
	$(BIN)/python -m tests.bench.fabric --bar
	$(BIN)/python -m tests.bench.fuzz
	$(BIN)/python -m tests.bench.soak --bar

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tunedeck needs Python 3.10 or newer; $(PYTHON) is older. Try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }

$(VENV)/.ready: $(BIN)/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV); the first time this downloads about 400 MB and takes a few minutes."
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[console,jobs,demo]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[console,jobs,demo,data,dev]'
	@touch $@
