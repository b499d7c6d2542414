"""The normal form: exports and decomposed exports of a model become one program, which stays as it is."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from gsl import Workload
from gsl.rules import NORMAL
from tests.helpers.models import MODELS

SPELT_IN_TWO_WAYS = {"full", "zeros", "copy", "ones"}
"""Numbers as tensors, which torch makes when it decomposes."""


def workloads(name: str) -> tuple[Workload, Workload]:
    """A model as it is exported, and decomposed."""
    torch.manual_seed(0)
    module, example = MODELS[name]()
    module.model.set_attn_implementation("eager")
    exported = torch.export.export(module.eval(), (example,))
    return Workload.from_exported(exported), Workload.from_exported(exported.run_decompositions())


def calls(wl: Workload) -> Counter[str]:
    return Counter({op: n for op, n in wl.op_counts().items() if op not in SPELT_IN_TWO_WAYS and "aten" not in op})


@pytest.mark.parametrize("name", ["bert", "t5_encoder", "vit"])
def test_exports_and_decomposed_exports_become_one_program(name: str) -> None:
    exported, decomposed = workloads(name)
    assert calls(exported) != calls(decomposed)
    forms = [NORMAL(wl, iterative=True) for wl in (exported, decomposed)]
    assert calls(forms[0]) == calls(forms[1])
    for before, after in zip((exported, decomposed), forms):
        before.compare(after).check()
        assert len(after.graph) < len(before.graph)
        assert NORMAL(after, iterative=True).trace.count() == 0
