"""The models of ONNX's own backend tests: they come back as they were, and written anew they give the results that
these tests tell."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import warnings
from typing import Any, Final

import numpy as np
import onnx
import pytest

from gsl import Workload
from gsl.front.onnx.files import OLDEST
from gsl.graph import GETITEM, LEAVES, TUPLE, Graph, Node
from tests.front.onnx.onnx_helpers import anew, bytes_of, check, untold

pytest.importorskip("onnxruntime")

EVERY: Final = [pytest.param(4, 8, id="32"), pytest.param(1, 16, id="16", marks=pytest.mark.long)]
"""One in so many of onnx's modules is loaded, which makes their cases, of which one in so many is taken; all of them
take four minutes. The first ones are not those of pooling, whose references take seconds."""
UNWRITTEN: Final = {"test_pow_types_int64_int64", "test_pow_types_int32_int32"}
"""Cases that are read and can't be written anew: powers of integers that are not known."""
RANDOM: Final = ("bernoulli", "range_bfloat16")
"""Cases of which onnxruntime does not give the results even for the models as they are."""


def cases(modules: int, each: int) -> list[Any]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node

        for module in [*pkgutil.walk_packages(node.__path__, f"{node.__name__}.")][modules - 1 :: modules]:
            importlib.import_module(module.name)
    found = sorted(node._NodeTestCases, key=lambda case: case.name)
    return [case for case in found[::each] if _version(case.model) >= OLDEST]


def _version(model: onnx.ModelProto) -> int:
    return next((own.version for own in model.opset_import if not own.domain), OLDEST)


def calls(view: Graph) -> list[Node]:
    """The calls that are read as canonical ones."""
    return [node for node in view if isinstance(node.op, str) and node.op not in (*LEAVES, TUPLE, GETITEM)]


def is_close(found: Any, wanted: Any) -> bool:
    """True for arrays of one shape and dtype whose elements agree to the precision of that."""
    wanted = np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    kind = np.complex128 if found.dtype.kind == "c" else np.float64
    near = {"rtol": 2e-3, "atol": 1e-2} if found.dtype.itemsize < 4 else {"rtol": 1e-3, "atol": 1e-5}
    return bool(np.allclose(found.astype(kind), wanted.astype(kind), equal_nan=True, **near))


def holds(wl: Workload, given: Any, wanted: Any) -> bool:
    """True if a model gives these results."""
    found = wl.program.build()(*given)
    results = found if isinstance(found, tuple) else (found,)
    return all(is_close(one, other) for one, other in zip(results, wanted, strict=True))


@pytest.mark.parametrize(("modules", "each"), EVERY)
def test_onnxs_own_tests(modules: int, each: int) -> None:
    ran: list[Any] = []
    for case in cases(modules, each):
        wl = Workload.from_onnx(case.model)
        before = bytes_of(wl.model)
        assert wl.program.store(wl.program.load()).native is wl.model, case.name
        assert not untold(wl), case.name
        if not calls(wl.graph) or case.name in UNWRITTEN or any(name in case.name for name in RANDOM):
            continue
        new = anew(wl)
        check(new.model)
        assert not untold(new), case.name
        assert bytes_of(wl.model) == before, case.name
        (given, wanted), *_ = case.data_sets
        with contextlib.suppress(Exception):  # of onnxruntime, for what it lacks, and of the reference
            if holds(wl, given, wanted):
                ran.append((case.name, new, given, wanted))
    for name, new, given, wanted in ran:
        assert holds(new, given, wanted), f"{name}\n{new}"
    assert len(ran) * modules * each > 640


def test_another_result_is_told() -> None:
    assert is_close(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    for other in (np.zeros((2, 3), np.float32), np.ones((3, 2), np.float32), np.ones((2, 3))):
        assert not is_close(np.ones((2, 3), np.float32), other)
