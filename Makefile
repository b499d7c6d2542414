VENV := .venv
PYTHON := python3
BIN := $(VENV)/bin

# Made when the installation is complete, so that an interrupted one is done again.
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench

# An environment of its own, because Relay needs an older TVM than Relax.
RELAY_VENV := .venv-relay
RELAY_STAMP := $(RELAY_VENV)/.installed

# A folder of its own for packages beside which others can't be imported.
VISION_STAMP := $(VENV)/vision/.installed

# What is compiled of this repository is kept, because every process of the tests needs it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo quick test test-torch test-relax test-long test-relay test-relay-long bench docs lint clean

setup: $(STAMP) $(VISION_STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

$(VISION_STAMP): $(STAMP) constraints-vision.txt
	$(BIN)/python -m pip install -q --no-deps --upgrade --target $(VENV)/vision -r constraints-vision.txt
	touch $@

demo: setup
	$(BIN)/python -m demo

# The core, in seconds and without a framework; what needs torch and not TVM; what needs TVM; the long rest of sweeps;
# all but that.
quick: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal --tier quick

test-torch test-relax test-long: test-%: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal --tier $*

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal

$(RELAY_STAMP): tools/relay_env.py constraints-relay.txt pyproject.toml
	$(PYTHON) tools/relay_env.py $(RELAY_VENV)
	touch $@

# The front ends for torch, of which the other environment has the same, run there. The long rest is that of Relay alone.
test-relay: $(RELAY_STAMP)
	$(RELAY_VENV)/bin/relay-python -m pytest -n 2 --dist worksteal -k relay tests/front/relay tests/conformance \
		'tests/test_docs.py::test_examples_run[relay.md]'

test-relay-long: $(RELAY_STAMP)
	$(RELAY_VENV)/bin/relay-python -m pytest -n 2 --dist worksteal --tier long -k relay tests/front/relay tests/conformance

# The systems with which GSL is compared; what can't be installed is left out of the results.
$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]' && touch $@ || \
	echo 'not all peers could be installed; the results name those that are left out'

bench: $(BENCH_STAMP)
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -j 2 docs docs/_build/html
	@echo open docs/_build/html/index.html

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

clean:
	rm -rf $(VENV) $(RELAY_VENV) build dist docs/_build docs/_rules docs/rules.md *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
