VENV := .venv
PYTHON := python3
BIN := $(VENV)/bin

# Made when the installation is complete, so that an interrupted one is done again.
STAMP := $(VENV)/.installed

.PHONY: setup demo test bench lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m demo

test: setup
	$(BIN)/python -m pytest -n 2

bench: setup
	$(BIN)/python -m benchmarks

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
