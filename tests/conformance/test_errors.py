"""Errors name the framework and what to do, and leave the program as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gsl import front
from gsl.errors import FrontEndError
from gsl.front.base import Program
from gsl.graph import INPUT, Graph, Node, TensorType
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.programs import plain, program_of
from tests.rules.harness import Build, build

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)

TYPE = TensorType((2, 3), "float64")


def small(b: Build) -> Node:
    return b.call("exp", b.call("add", b.input("x", 2, 3), b.param("w", 2, 3)))


def large(b: Build) -> Node:
    return b.call("sin", small(b))


def with_output(view: Graph, make: Callable[[Node], list[Node]]) -> Graph:
    """The view with new nodes at its end, made from its output, of which the last one is the output."""
    made = make(view.outputs[0])
    return Graph([*view.nodes, *made], made[-1:], view.infer, view.canonical)


def unknown(y: Node) -> list[Node]:
    return [Node("nn.convolution", (y,), {}, TYPE, name="made")]


def unknown_target(y: Node) -> list[Node]:
    return [Node(unknown_target, (y,), {"of": object()}, TYPE, name="made")]


def one_more_input(y: Node) -> list[Node]:
    x = Node(INPUT, (), {}, TYPE, name="more")
    return [x, Node("add", (x, y), {}, TYPE, name="made")]


def two_outputs(program: Program) -> Graph:
    view = program.load()
    return Graph(view.nodes, [*view.outputs, *view.outputs], view.infer, view.canonical)


def an_operand_that_is_gone(program: Program) -> Graph:
    view = program.load()
    return Graph([node for node in view.nodes if node.op != "add"], view.outputs, view.infer, view.canonical)


FAILURES: dict[str, tuple[Callable[[Program, FrontEnd], Graph], str]] = {
    "the view of another program": (
        lambda program, front_end: program_of(build(large), front_end).load(),
        "load",
    ),
    "the view of an equal program": (
        lambda program, front_end: program_of(build(small), front_end).load(),
        "load",
    ),
    "an operator that nobody knows": (
        lambda program, front_end: with_output(program.load(), unknown),
        "nn.convolution",
    ),
    "one more input": (
        lambda program, front_end: with_output(program.load(), one_more_input),
        "more",
    ),
    "one more output": (lambda program, front_end: two_outputs(program), "output"),
    "an operand that is gone": (lambda program, front_end: an_operand_that_is_gone(program), "add"),
}


@EACH
@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_stored(name: str, front_end: FrontEnd) -> None:
    make, part = FAILURES[name]
    program = program_of(build(small), front_end)
    text = plain(program.load())
    view = make(program, front_end)
    with pytest.raises(FrontEndError) as caught:
        program.store(view)
    assert front_end.word in str(caught.value)
    assert part in str(caught.value)
    assert plain(program.load()) == text
    assert not front_end.differences(program.native, program.store(program.load()).native)


@EACH
def test_another_object_is_no_program(front_end: FrontEnd) -> None:
    for source in (3, "module", [1.0], object()):
        with pytest.raises(FrontEndError) as caught:
            front_end.program(source)
        assert front_end.word in str(caught.value)
        assert type(source).__name__ in str(caught.value)
    native = program_of(build(small), front_end).native
    assert type(front.program(native)) is type(front_end.program(native))
