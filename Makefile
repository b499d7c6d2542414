VENV := .venv
PYTHON := python3
BIN := $(VENV)/bin

# Made when the installation is complete, so that an interrupted one is done again.
STAMP := $(VENV)/.installed

# An environment of its own, because Relay needs an older TVM than Relax.
RELAY_VENV := .venv-relay
RELAY_STAMP := $(RELAY_VENV)/.installed

.PHONY: setup demo test test-relay bench lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m demo

test: setup
	$(BIN)/python -m pytest -n 2

$(RELAY_STAMP): tools/relay_env.py constraints-relay.txt pyproject.toml
	$(PYTHON) tools/relay_env.py $(RELAY_VENV)
	touch $@

test-relay: $(RELAY_STAMP)
	$(RELAY_VENV)/bin/relay-python -m pytest -n 2 --dist worksteal tests/front/relay tests/conformance

bench: setup
	$(BIN)/python -m benchmarks

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

clean:
	rm -rf $(VENV) $(RELAY_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
