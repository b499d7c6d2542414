"""Each test compiles for itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.helpers.compiled import fresh


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh():
        yield
