"""The pattern of a part of a program: it matches there, and so does what its text builds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import gsl
from gsl import Subst, Workload, op, pat
from gsl.errors import PatternError, WorkloadError
from gsl.graph import Effect, Node, is_call
from tests.helpers.models import MODELS, decomposed, exported
from tests.helpers.nets import Of

Source = pat.Pattern | list[pat.Pattern]


def outputs(source: Source, workload: Workload) -> list[list[Node]]:
    """The outputs of all matches."""
    return [list(match.outputs) for match in Subst(source, lambda match: list(match.outputs)).match(workload)]


def built(text: str) -> dict[str, Any]:
    """The variables that statements make."""
    variables: dict[str, Any] = {}
    exec(f"from gsl import *\n{text}", variables)
    return variables


def last(text: str) -> pat.Pattern:
    """The pattern that statements build."""
    return [value for value in built(text).values() if isinstance(value, pat.Pattern)][-1]


def around(node: Node, depth: int) -> list[Node]:
    """What feeds the calls that are at most so many steps above a node; what is closed is not looked into."""
    inner, closed, layer = set[Node](), set[Node](), {node}
    for _ in range(depth):
        inner |= layer
        below = {operand for each in layer for operand in each.operands if operand.operands}
        closed.update(filter(is_closed, below))
        layer = below - closed
    return [*(closed | layer) - inner]


def is_closed(node: Node) -> bool:
    """True for the call of a graph, which has no text, and for one with an effect, which no rule may replace."""
    return node.effect in (Effect.MUTATES, Effect.OTHER) or not isinstance(node.op, (str, torch._ops.OpOverload))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", [exported, decomposed])
@pytest.mark.parametrize("name", MODELS)
def test_a_pattern_matches_where_it_was_made(name: str, form: Callable[[str], Any]) -> None:
    workload, source = Workload.from_exported(form(name)), random.Random(name)
    calls = [node for node in workload.graph if is_call(node) and not is_closed(node)]
    for node in source.sample(calls, 20):
        part = workload.pattern(node, around(node, source.randrange(1, 4)))
        assert [node] in outputs(part.source, workload)
        assert [node] in outputs(last(str(part)), workload)


@pytest.fixture(scope="module")
def gate() -> Workload:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            left, right = self.up(x).split([6, 2], -1)
            left = torch.softmax(left * 0.5, -1)
            return torch.cat([left, right * left.sum()], 1), torch.relu(right)

    return Workload.from_torch(Gate().eval(), (torch.randn(2, 4),))


def test_the_text_of_a_pattern(gate: Workload) -> None:
    part = gate.pattern("%cat", inputs=["linear"])
    assert str(part) == """\
linear = pat.Wildcard()
split_with_sizes = op.Split(linear, indices_or_sections=(6,), axis=1)
mul = split_with_sizes[0] * 0.5
softmax = op.Softmax(mul)
sum_1 = op.Sum(softmax)
mul_1 = split_with_sizes[1] * sum_1
cat = op.Concatenate(pat.Tuple(softmax, mul_1), axis=1)"""
    assert Subst(part.source, op.ReLU(part["linear"]))(gate).op_counts()["nn.relu"] == 2


def test_several_outputs_and_inputs_of_the_program(gate: Workload) -> None:
    part = gate.pattern(["softmax", "relu"])
    assert str(part).startswith("x = pat.Wildcard()\nup_weight = pat.Param()\n")
    found = built(str(part))
    ends = [node for name in ("softmax", "relu") for node in gate.graph if node.name == name]
    assert outputs(part.source, gate) == outputs([found["softmax"], found["relu"]], gate) == [ends]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("sofmax",), "has no node 'sofmax': did you mean 'softmax'?"),
        (([],), "a pattern ends with one node at least"),
        (("x",), "a pattern ends with a call, and %x is none within it"),
        (("softmax", ["softmax"]), "a pattern ends with a call, and %softmax is none within it"),
        (("softmax", ["relu"]), "nothing leads from the input %relu to an output of the pattern"),
        ((Node("nn.relu", ()),), "is not in the view of Gate; take it from wl.graph"),
    ],
)
def test_what_is_no_part(gate: Workload, given: Sequence[Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        gate.pattern(*given)


def test_a_call_with_an_effect_is_not_part_of_a_pattern() -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y[:1].fill_(1.0)
        return torch.relu(y)

    workload = Workload.from_fx(torch.fx.symbolic_trace(change), (torch.randn(2, 3),))
    with pytest.raises(WorkloadError, match="can't stand in a source, because it has an effect"):
        workload.pattern("fill_")


def test_functions_and_modules_of_torch() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Bilinear(4, 4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.both(x, torch.erfinv(x)) + x.nansum(dtype=torch.float32)

    workload = Workload.from_fx(torch.fx.symbolic_trace(Model()), (torch.rand(3, 4),))
    text = str(workload.pattern("add"))
    assert text.startswith("import torch\nx = pat.Wildcard()\nerfinv = pat.Call(torch.erfinv, x)\n")
    assert "pat.Call(torch.nn.Bilinear, x, erfinv, in1_features=4" in text
    assert "pat.Call(torch.Tensor.nansum, x, dtype=torch.float32)" in text
    assert outputs(last(text), workload) == [workload.graph.outputs]


def test_sizes_that_are_symbolic_are_not_demanded() -> None:
    model = Of(lambda x: torch.relu(x.reshape(x.shape[0], -1)))
    batch = torch.export.Dim("batch")
    workload = Workload.from_torch(model, (torch.randn(3, 2, 2),), dynamic_shapes=(({0: batch},),))
    assert str(workload.pattern("relu")).endswith("reshape = op.Reshape(inputs_0)\nrelu = op.ReLU(reshape)")


def test_operators_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    workload = Workload.from_onnx(onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22, "my.own" : 1]>
        model (float[2, 3] in) => (float[2, 3] pat) {
            attr = Hardmax <axis = 1> (in)
            pat = my.own.Scale <by = 2> (attr)
        }"""))
    text = str(workload.pattern("pat"))
    assert text == """\
in2 = pat.Wildcard()
attr2 = pat.Call('onnx::Hardmax', in2, axis=1)
pat2 = pat.Call('my.own::Scale', attr2, by=2)"""
    assert outputs(last(text), workload) == [workload.graph.outputs]


def test_operators_by_their_names() -> None:
    view = ("add", ("x",), ("mul", ("x",), ("y",)))
    workload = Workload.from_nodes([view], operands=lambda each: each[1:], op=lambda each: each[0])
    text = str(workload.pattern(workload.graph.outputs, ["mul"]))
    assert text == """\
x = pat.Call(pat.OpName('x'))
mul = pat.Wildcard()
add = pat.Call(pat.OpName('add'), x, mul)"""
    assert outputs(last(text), workload) == [workload.graph.outputs]


def test_objects_have_a_pattern_and_no_text() -> None:
    class Leaf: ...

    workload = Workload.from_nodes([Leaf()], operands=lambda each: ())
    part = workload.pattern(workload.graph.outputs)
    assert outputs(part.source, workload) == [workload.graph.outputs]
    with pytest.raises(PatternError, match="Leaf can't be written as Python: it has no name by which it is found"):
        str(part)


@pytest.mark.relax
def test_operators_of_relax() -> None:
    from tvm import relax

    build = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    with build.function("main", [x]):
        with build.dataflow():
            y = build.emit_output(relax.op.nn.relu(relax.op.cumprod(x, 1)))
        build.emit_func_output(y)
    workload = Workload.from_relax(build.get())
    text = str(workload.pattern(workload.graph.outputs))
    assert "pat.Call(tvm.ir.Op.get('relax.cumprod'), x, axis=1" in text
    assert outputs(last(text), workload) == [workload.graph.outputs]


def test_names_that_python_has() -> None:
    def function(op: torch.Tensor, lambda_: torch.Tensor) -> torch.Tensor:
        return torch.relu(op) * lambda_

    graph = torch.fx.symbolic_trace(function)
    workload = Workload.from_fx(graph, (torch.randn(2), torch.randn(2)))
    text = str(workload.pattern("mul"))
    assert text.splitlines()[0] == "op2 = pat.Wildcard()"
    assert outputs(last(text), workload) == [workload.graph.outputs]
    assert gsl.op is op
