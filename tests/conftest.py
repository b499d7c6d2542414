"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import hurry, tiers

SEEDS = {"random": "seed", "numpy.random": "seed", "torch": "manual_seed"}

# Always the same examples, however slow the machine is; new ones with ``--hypothesis-profile default``.
settings.register_profile(
    "steady", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, help="only the tests of this tier")


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # there is a worker for each core
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # Else inductor compiles six programs in each process and empty cache, to find out what the processor has.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
    tiers.chosen = config.getoption("--tier")
    if tiers.chosen == "quick":
        tiers.without_frameworks()
    hurry.find_modules()
    hurry.draw_once()
    gc.disable()  # what is imported stays, and Python's collector would go through it again and again


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module without tests of the tier is not even imported, nor is the ``conftest.py`` of a folder without them."""
    wanted = config.getoption("--tier")
    if wanted is None:
        return None
    modules = [collection_path] if collection_path.suffix == ".py" else collection_path.rglob("test_*.py")
    return None if any(tiers.may_hold(path, wanted) for path in modules) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--tier")
    tiers.thin(items)
    kept = [item for item in items if tiers.runs(item, wanted)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[*{*items} - {*kept}])
        items[:] = kept


def pytest_collectstart(collector: pytest.Collector) -> None:
    seed(collector.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    seed(item.nodeid)


def seed(place: str) -> None:
    """What a module or a test draws depends on its name alone, not on what ran before it in the same process."""
    for module, function in SEEDS.items():
        if module in sys.modules:
            getattr(sys.modules[module], function)(zlib.crc32(place.encode()))


def pytest_collection_finish() -> None:
    """What is there before the first test is not gone through again when Python's collector starts."""
    hurry.hurry()
    gc.enable()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 20)


def pytest_sessionfinish() -> None:
    """What is left after the last test is not gone through either; pytest has the collector do so several times."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured is kept in a folder of the tests, and not in the user's."""
    before = os.environ.get("GSL_CACHE")
    os.environ["GSL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["GSL_CACHE"]
    if before is not None:
        os.environ["GSL_CACHE"] = before


@pytest.fixture
def own_recursion_limit() -> Iterator[None]:
    """Python's own limit, which tinygrad raises for the process that imports it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)
