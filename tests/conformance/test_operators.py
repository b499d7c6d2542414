"""Every operator is written by every front end and read again, with its attributes, its type and its values."""

from __future__ import annotations

import pytest
import torch

from gsl import Workload
from gsl.errors import FrontEndError
from gsl.front.base import Program
from gsl.graph import LEAVES, TUPLE, Graph, op_name
from gsl.spec import TABLE
from gsl.workload.compare import flatten, plain_tensor
from tests.conformance.front_ends import AVAILABLE, OLD_ONNX, FrontEnd
from tests.conformance.operators import view
from tests.conformance.programs import plain, program_of, results
from tests.helpers.examples import CALLS, EVERY_CALL, ExampleCall

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)


def calls(graph: Graph) -> str:
    """The operators of a view in a word each, in alphabetical order."""
    return " ".join(sorted({op_name(node.op) for node in graph.nodes if node.op not in LEAVES | {TUPLE, "getitem"}}))


def check_types(graph: Graph) -> None:
    """The native type of every canonical call is the one that is inferred for it."""
    for node in graph.nodes:
        if node.op in TABLE:
            assert graph.infer(node.op, node.operands, node.attrs) == node.type, node


def check_sharing(graph: Graph) -> None:
    """Nothing is computed twice."""
    calls = [(node.op, node.operands, str(node.attrs)) for node in graph.nodes if node.op not in LEAVES]
    assert len(set(calls)) == len(calls)


@pytest.mark.sweep(4)
@EACH
@pytest.mark.parametrize("call", EVERY_CALL, ids=str)
def test_comes_back_as_it_was(call: ExampleCall, front_end: FrontEnd) -> None:
    written, _ = view([call])
    if not front_end.has([call.op]):
        pytest.skip(f"{front_end.name} has no {call.op}")
    if reason := front_end.missing.get(call.op) or front_end.refused.get(call.label):
        with pytest.raises(FrontEndError) as caught:
            program_of(written, front_end)
        assert reason in str(caught.value)
        return
    loaded = program_of(written, front_end).load()
    assert [node.type for node in results(loaded)] == [node.type for node in written.outputs]
    check_types(loaded)
    check_sharing(loaded)
    if call.label in front_end.composed:
        assert calls(loaded) == front_end.composed[call.label]
        assert plain(loaded, full=True) != plain(written, full=True)
    elif call.op in front_end.unspelled:
        composed = program_of(view([call], decompose=True)[0], front_end).load()
        assert plain(loaded, full=True) == plain(composed, full=True)
    else:
        assert plain(loaded, full=True) == plain(written, full=True)


def run(program: Program, fed: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a program in order."""
    return [plain_tensor(value) for _, value in flatten(Workload(program)(*fed))]


@pytest.mark.sweep(3)
@EACH
@pytest.mark.parametrize("family", CALLS)
def test_computes_what_it_means(family: str, front_end: FrontEnd) -> None:
    rows = [call for call in CALLS[family] if not front_end.refuses(call.op, call.label)]
    if not rows:
        pytest.skip(f"{front_end.name} has none of them")
    written, fed = view(rows)
    found = iter(run(program_of(written, front_end), fed))
    wrong = []
    for call in rows:
        result = call.expected()
        for expected in result if isinstance(result, tuple) else (result,):
            try:
                relative, absolute = max(1e-4, call.tolerance), call.tolerance
                torch.testing.assert_close(next(found), expected, rtol=relative, atol=absolute, equal_nan=True)
            except AssertionError as error:
                wrong.append(f"{call.label}: {error}")
    assert not wrong, "\n".join(wrong)
    assert next(found, None) is None


_INF, _NAN = float("inf"), float("nan")
_SIGNED = torch.tensor([6.0, -6.0, 6.0, -6.0, 5.0, -5.0, 5.0]), torch.tensor([3.0, 3.0, -3.0, -3.0, 3.0, 3.0, -3.0])
_HEADS = torch.linspace(-1, 1, 60).reshape(1, 1, 5, 12).split([4, 4, 4], -1)
CORNERS = [
    ("floor_mod", _SIGNED, {}), ("mod", _SIGNED, {}), ("floor_divide", _SIGNED, {}),
    ("logsumexp", (torch.tensor([[-_INF, -_INF], [_INF, 1.0], [300.0, -300.0], [_NAN, 1.0]]),), {"axis": 1}),
    ("logsumexp", (torch.tensor([[1, 2], [-3, 70]]),), {"axis": (0, 1)}),
    ("log1p", (torch.tensor([-1.0, -2.0, 0.0, 1e-10, 1.0, _INF, -_INF, _NAN]),), {}),
    ("log1p", (torch.arange(4),), {}),
    ("expm1", (torch.tensor([-_INF, -90.0, -1e-10, 0.0, 1e-10, 3.0, _NAN]),), {}), ("expm1", (torch.arange(4),), {}),
    ("elu", (torch.tensor([-_INF, -1.0, -1e-10, 0.0, 2.0, _INF]),), {"alpha": 0.5}),
    ("softplus", (torch.tensor([-50.0, -1.0, 0.0, 0.25, 0.75, 9.0, 50.0]),), {"beta": 2.0, "threshold": 1.0}),
    ("softplus", (torch.linspace(-9, 9, 7).double(),), {"beta": 0.5, "threshold": 3.0}),
    ("gelu", (torch.linspace(-4, 4, 9),), {"approximate": "tanh"}), ("gelu", (torch.linspace(-4, 4, 9),), {}),
    ("nn.attention", _HEADS, {"scale": None}), ("nn.attention", _HEADS, {"scale": 1.0}),
    ("nn.attention", _HEADS, {"is_causal": True}),
    ("nn.attention", (*_HEADS, torch.ones(5, 5).tril() > 0), {}),
    ("nn.attention", (*_HEADS, torch.linspace(-9, 9, 25).reshape(5, 5)), {}),
    ("nn.rms_norm", (torch.linspace(-1, 1, 12).reshape(3, 4), torch.arange(3.0)), {"axis": 0, "epsilon": 0.5}),
    ("nn.rms_norm", (torch.linspace(-1, 1, 12).reshape(3, 4) * 1e3, torch.arange(4.0)), {"epsilon": 1e-6}),
    ("nn.rms_norm", ((torch.linspace(-1, 1, 12).reshape(3, 4) * 1e3).half(), torch.arange(4).half()), {}),
]  # fmt: skip
"""Calls of composed operators with the numbers at which their parts are infinite, zero or equal."""


@pytest.mark.parametrize("front_end", [*AVAILABLE, OLD_ONNX], ids=lambda front_end: front_end.name)
@pytest.mark.parametrize("number", range(len(CORNERS)))
def test_corners_mean_what_they_should(number: int, front_end: FrontEnd) -> None:
    op, operands, attrs = CORNERS[number]
    call = ExampleCall(op, op, operands, attrs)
    if front_end.unavailable or front_end.refuses(op, op):
        pytest.skip(f"{front_end.name} has no {op}")
    written, fed = view([call])
    (found,) = run(program_of(written, front_end), fed)
    torch.testing.assert_close(found, call.expected(), rtol=1e-5, atol=max(1e-6, call.tolerance / 10), equal_nan=True)


@EACH
def test_the_lists_name_what_there_is(front_end: FrontEnd) -> None:
    labels = {call.label for call in EVERY_CALL}
    assert set(front_end.missing) <= set(TABLE)
    assert set(front_end.composed) <= labels
    assert set(front_end.refused) <= labels
    for label in front_end.refused:
        assert label.split("(")[0].split(" #")[0] not in front_end.missing


def test_labels_are_unique() -> None:
    assert len({call.label for call in EVERY_CALL}) == len(EVERY_CALL)


def test_the_values_can_tell_a_wrong_operator() -> None:
    front_end, (call, *_) = AVAILABLE[0], CALLS["math"]
    written, fed = view([call])
    (found,) = run(program_of(written, front_end), fed)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found + 1e-3, call.expected(), rtol=1e-4, atol=1e-5)
