"""The tests with real Relay run where there is one: ``make test-relay`` makes an environment with it."""

from __future__ import annotations

import importlib.util

import pytest


def _has_relay() -> bool:
    try:
        return importlib.util.find_spec("tvm.relay") is not None
    except ModuleNotFoundError:
        return False


HAS_RELAY = _has_relay()
collect_ignore_glob = [] if HAS_RELAY else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    for message in ("visit_.* is deprecated", "distutils Version classes are deprecated"):  # in TVM's own code
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")


def pytest_report_header() -> str:
    return f"Relay: {'found' if HAS_RELAY else 'not found, so that tests/front/relay is left out (make test-relay)'}"
