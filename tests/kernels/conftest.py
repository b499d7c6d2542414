"""Each test of a kernel begins without gradients, and with nothing packed and nothing chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gsl import kernels


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("gsl.kernels.operator._CHOICES", {})
    kernels.clear()
    with torch.no_grad():
        yield
    kernels.clear()
