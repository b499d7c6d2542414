"""The text form of views."""

import functools
import operator

import pytest

from gsl.graph import Effect, Graph, Node, TensorType, TupleType
from gsl.graph.text import node_names, text, value_text
from gsl.graph.types import dim

FLOAT = TensorType((2, 3), "float32")


def view(*outputs: Node) -> Graph:
    """The view of all nodes that the outputs need, operands first."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in order:
            for operand in (*node.operands, *node.deps):
                visit(operand)
            order[node] = None

    for output in outputs:
        visit(output)
    return Graph(order, outputs, lambda op, operands, attrs: None)


def leaf(name: str, op: str = "input", **attrs: object) -> Node:
    return Node(op, type=FLOAT, name=name, attrs=attrs)


def test_calls_leaves_and_scalars() -> None:
    x, w = leaf("x"), leaf("conv1.weight", "param", value=None)
    conv = Node("nn.conv2d", (x, w), {"strides": (1, 1), "groups": None}, TensorType((2, 4), "float32"), name="conv2d")
    add = Node("add", (conv, Node("const", attrs={"value": 2.0})), name="add")
    assert text(view(add)) == """\
%x: float32[2, 3] = input
%conv1.weight: float32[2, 3] = param
%conv2d: float32[2, 4] = nn.conv2d(%x, %conv1.weight, strides=(1, 1))
%add = add(%conv2d, 2.0)
return %add"""


def test_hide_decides_about_attributes() -> None:
    node = Node("f", (leaf("x"),), {"a": 1, "b": None, "c": 3}, name="f")
    assert "f(%x, a=1, c=3)" in text(view(node))
    assert "f(%x, a=1, b=None, c=3)" in text(view(node), hide=lambda node, name, value: False)
    assert "f(%x, a=1)" in text(view(node), hide=lambda node, name, value: name != "a")


def test_tuples_and_fields_stand_where_they_are_used() -> None:
    x, y = leaf("x"), leaf("y")
    split = Node("split", (x,), {"sections": 2}, TupleType((FLOAT, None)), name="split")
    first, second = (Node("getitem", (split,), {"index": i}, name=f"get{i}") for i in range(2))
    joined = Node("concatenate", (Node("tuple", (second, first, y)),), {"axis": 1}, name="cat")
    assert text(view(joined, Node("tuple", (y,)), first)) == """\
%x: float32[2, 3] = input
%split: (float32[2, 3], None) = split(%x, sections=2)
%y: float32[2, 3] = input
%cat = concatenate((%split[1], %split[0], %y), axis=1)
return %cat, (%y,), %split[0]"""


def test_opaque_calls_effects_and_dependencies() -> None:
    x = leaf("x")
    size = Node(operator.mul, (x,), name="size")
    drop = Node("nn.dropout", (x,), {"rate": 0.5}, name="drop", effect=Effect.RANDOM, deps=(size,))
    assert text(view(drop)) == """\
%x: float32[2, 3] = input
%size = _operator.mul(%x)
%drop = nn.dropout(%x, rate=0.5) with %size !random
return %drop"""


def test_literal_tensors_have_a_line() -> None:
    tensor = Node("const", attrs={"value": object()}, type=TensorType((1,), "int64"), name="c")
    assert text(view(tensor)) == "%c: int64[1] = const\nreturn %c"


def test_names_are_unique() -> None:
    x = leaf("x")
    nodes = [Node("abs", (x,), name=name) for name in ("a", "a", "a_1", "", "")]
    assert list(node_names(view(*nodes)).values()) == ["x", "a", "a_2", "a_1", "abs", "abs_1"]


def test_the_view_prints_itself_and_a_deep_one_too() -> None:
    node = leaf("x")
    nodes = [node]
    for _ in range(20_000):
        node = Node("abs", (node,))
        nodes.append(node)
    graph = Graph(nodes, [node], lambda op, operands, attrs: None)
    assert str(graph).endswith("return %abs_19999")
    assert str(graph) == str(graph.copy())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "True"),
        (1e-5, "1e-05"),
        ("NCHW", "'NCHW'"),
        ((1,), "(1,)"),
        ([1, (2, 3)], "[1, (2, 3)]"),
        ({"a": (1,)}, "{'a': (1,)}"),
        (slice(None, 3), ":3:"),
        (object(), "<object>"),
        (functools.partial(lambda: 0), "<partial>"),
        (operator.add, "_operator.add"),
        (FLOAT, "float32[2, 3]"),
    ],
)
def test_values(value: object, expected: str) -> None:
    assert value_text(value) == expected


def test_symbolic_sizes() -> None:
    sympy = pytest.importorskip("sympy")
    s0 = sympy.Symbol("s0", positive=True, integer=True)
    assert value_text((dim(2 * s0), 3)) == "(2*s0, 3)"


@pytest.mark.torch
def test_tensors_are_not_printed() -> None:
    torch = pytest.importorskip("torch")
    assert value_text(torch.zeros(2, 3)) == "<float32[2, 3]>"
    assert value_text(torch.float16) == "torch.float16"
