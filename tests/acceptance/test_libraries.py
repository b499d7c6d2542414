"""Models of transformers, torchvision and timm: nearly all calls are read, and they are rewritten and stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any, Final

import pytest
import torch

from tests.helpers.libraries import VISION, check, transformers

MOST: Final = 0.01
"""The part of the calls of all models that may have no canonical reading."""

UNREAD: Final[dict[str, dict[str, dict[str, int]]]] = {
    "transformers": {
        # labels that are shifted by writing to parts of them
        "bart": {
            "aten.copy_.default": 1, "aten.fill_.Tensor": 1, "aten.masked_fill_.Scalar": 1, "aten.new_zeros.default": 1,
            "aten.select.int": 1, "aten.slice.Tensor": 1,
        },
        "mbart": {
            "aten.slice.Tensor": 2, "aten.clone.default": 1, "aten.copy_.default": 1, "aten.fill_.Tensor": 1,
            "aten.masked_fill_.Scalar": 1, "aten.select.int": 1,
        },
    },
    "torchvision": {},
    "timm": {},
}  # fmt: skip
"""The calls of the models of each library that have none."""


SOME: Final = ("deberta_v2", "falcon", "swin", "whisper_encoder")
"""The models of transformers that are not left to the long tests."""


def judge(library: str, found: dict[str, dict[str, Any]]) -> None:
    """Few calls of the models are not read, all of them listed, and rules fire in most."""
    unread: Counter[str] = Counter()
    for result in found.values():
        unread.update(result["unread"])
    assert {name: result["unread"] for name, result in found.items() if result["unread"]} == {
        name: calls for name, calls in UNREAD[library].items() if name in found
    }
    assert sum(unread.values()) < MOST * sum(result["calls"] for result in found.values())
    assert sum(result["fired"] > 0 for result in found.values()) >= len(found) // 2


@pytest.mark.long
def test_some_models_of_transformers() -> None:
    torch.manual_seed(0)
    made = transformers()
    judge("transformers", {name: check(*made[name]()) for name in SOME})


@pytest.mark.long
def test_models_of_transformers() -> None:
    torch.manual_seed(0)
    found = {name: check(*make()) for name, make in transformers().items()}
    assert len(found) == 25
    judge("transformers", found)


@pytest.mark.long
@pytest.mark.skipif(not VISION.is_dir(), reason="make setup installs torchvision and timm in a folder of their own")
def test_models_of_vision() -> None:
    command = [sys.executable, "-m", "tests.helpers.libraries"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    libraries = json.loads(done.stdout.splitlines()[-1])
    assert {library: len(found) for library, found in libraries.items()} == {"torchvision": 10, "timm": 10}
    for library, found in libraries.items():
        judge(library, found)
