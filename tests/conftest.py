"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured is kept in a folder of the tests, and not in the user's."""
    before = os.environ.get("GSL_CACHE")
    os.environ["GSL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["GSL_CACHE"]
    if before is not None:
        os.environ["GSL_CACHE"] = before
