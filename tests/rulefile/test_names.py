"""The names of operators: what torch calls so is what they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gsl import Workload
from gsl.front.fx import spellings
from gsl.front.fx.spellings import FAMILIES
from gsl.front.tree import Canon
from gsl.rulefile.names import SEVERAL_RESULTS, Heads, OneNode, OperatorSelection, known_names, lookup
from gsl.spec import TABLE
from tests.front.fx import test_spellings as examples
from tests.rulefile.views import rules


def name_of(target: Any) -> str:
    if isinstance(target, str):
        return target
    return str(getattr(target, "_opname", None) or target.__name__)


def calls(tree: Any) -> Iterator[str]:
    """The canonical operators of a reading, operands first."""
    if isinstance(tree, Canon):
        for operand in tree.operands:
            yield from calls(operand)
        yield from () if tree.op == "tuple" else (tree.op,)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from calls(item)


def readings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of torch's functions, each with the canonical operators as which some call of it is read."""
    for call in [call for each in examples.SAME.values() for call in each]:
        canon = examples.read(call, examples.Once())
        if canon is not None:
            yield name_of(call.target), tuple(calls(canon))
    for call in examples.FIELDS:
        once = examples.Once()
        fields = spellings.read_fields(call.target, once.of(call.args), once.of(call.kwargs), examples.type_of)
        yield from ((name_of(call.target), tuple(calls(canon))) for canon in (fields or {}).values())


PYTHON = {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift",
          "getattr", "getitem"}  # fmt: skip
"""Python's operators, which are no functions of torch."""


def accepts(name: str, operators: tuple[str, ...]) -> bool:
    kind = lookup(name)
    if kind is None:
        return False
    if len(operators) == 1:
        return kind.alone and operators[0] in kind.heads.all()
    return operators[0] in kind.heads.all() and operators[1] in kind.joined


def test_a_name_stands_for_what_torch_does() -> None:
    # Scaled sums, another dtype, rolls and windows, norms of vectors, upsampling, shuffles: not one operator.
    several = {"multiply", "cast", "trunc", "strided_slice", "take", "sum", "repeat", "transpose"}
    wrong = {
        (name, found)
        for name, found in readings()
        if name not in PYTHON and not accepts(name, found) and (len(found) == 1 or several.isdisjoint(found))
    }
    single_image = {("batch_norm", ("nn.instance_norm",))}  # by its own statistics
    moments = {(f"{name}_mean", (op,)) for name, own in (("var", "variance"), ("std", "std")) for op in (own, "mean")}
    assert wrong == single_image | moments  # no operator has two results of this kind


def test_the_comparison_can_fail() -> None:
    assert accepts("linear", ("nn.dense", "nn.bias_add"))
    assert not accepts("linear", ("matmul", "nn.bias_add"))
    assert not accepts("addmm", ("matmul",))
    assert not accepts("relu", ("nn.gelu",))


def test_every_function_that_is_read_has_a_name() -> None:
    rows = [row for family in FAMILIES for kind in ("ROWS", "FIELDS") for row in getattr(family, kind, ())]
    names = {word.split(".")[1] for row in rows for word in row.spellings.split()}
    assert {name for name in names - PYTHON if lookup(name) is None} == set()


def test_the_names_that_are_known_without_torch() -> None:
    assert all(lookup(name) is not None for name in known_names())
    assert all(lookup(name) is not None for name in TABLE)


@pytest.mark.parametrize(
    "name", ["", ".", "no such", "__name__", "Tensor", "nn.no", "aten", "compile", "handle_torch_function"]
)
def test_what_is_no_operator(name: str) -> None:
    assert lookup(name) is None


FUNCTIONS = {name for each in known_names() for name in (each, f"{each}_") if "." not in name and lookup(name)}


def functions(name: str) -> frozenset[Any]:
    return Heads(names=frozenset((name,))).all()


def test_no_function_has_two_of_the_names_that_are_known_without_torch() -> None:
    # So what one name stands for, and another one does not, is known before torch's functions are looked up.
    found = [function for name in FUNCTIONS for function in functions(name)]
    assert len(found) > 500
    assert len(found) == len(set(found))


def test_names_beside_those_share_functions_which_are_compared() -> None:
    both, one = lookup("det"), lookup("linalg_det")
    assert both is not None
    assert one is not None
    assert both.heads.all() > one.heads.all()
    assert not one.heads - both.heads
    assert (both.heads & one.heads).all() == one.heads.all()


def test_which_functions_have_several_results() -> None:
    for name in FUNCTIONS:
        kind = lookup(name)
        assert kind is not None
        returned = [len(head._schema.returns) for head in functions(name) if hasattr(head, "_schema")]
        specs = [TABLE[op] for op in kind.heads.canonical if op in TABLE]
        one = not any(spec.fields for spec in specs)
        assert (name in SEVERAL_RESULTS) == (one and any(number > 1 for number in returned)), name


def test_a_function_without_a_canonical_form() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = torch.kthvalue(torch.erfinv(x).tanh(), 2)
            return found[0].relu(), -found[1]

    text = """\
    r:
      pattern:
        a: {op_type: erfinv, child: b}
        b: {op_type: tanh, child: c}
        c: {op_type: kthvalue, children: [d, e]}
        d: {op_type: relu}
        e: {op_type: neg}
    """
    for workload in (
        Workload.from_torch(Net(), (torch.rand(3, 4),)),
        Workload.from_fx(torch.fx.symbolic_trace(Net()), (torch.rand(3, 4),)),
    ):
        (match,) = rules(text).rules[0].match(workload)
        assert [node.op for node in match.outputs] == ["nn.relu", "negative"]
        assert len(match.inner) == 7
        after = rules(text)(workload)
        workload.compare(after).check()
        assert [group.name for group in after.groups().values()] == ["r"]


def test_a_function_with_one_result_or_two() -> None:
    def function(x: torch.Tensor) -> Any:
        found = torch.max(x.exp(), 1)
        return found[0].relu(), found[1].neg()

    text = """\
    r:
      pattern:
        a: {op_type: exp, child: b}
        b: {op_type: max, children: [c, d]}
        c: {op_type: relu}
        d: {op_type: neg, required: false}
    """
    both = Workload.from_fx(torch.fx.symbolic_trace(function), (torch.rand(3, 4),))
    first = Workload.from_fx(torch.fx.symbolic_trace(lambda x: function(x)[0]), (torch.rand(3, 4),))
    for workload, expected in ((both, 1), (first, 1)):
        after = rules(text)(workload)
        workload.compare(after).check()
        assert len(after.groups()) == expected


def test_what_a_sequence_does_not_contain() -> None:
    def selection(*names: str, inverted: bool = False) -> OperatorSelection:
        kinds = tuple(kind for name in names if (kind := lookup(name)) is not None)
        return OperatorSelection(" ".join(names), kinds, inverted)

    def accepts(selected: OperatorSelection, op: Any) -> bool:
        return OneNode(selected.label, selected.heads, inverted=selected.inverted).accepts(op)

    both, relu, rest, most = selection("relu", "tanh"), selection("relu"), selection("relu", inverted=True), selection(
        "relu", "exp", inverted=True
    )  # fmt: skip
    for left, right in [(a, b) for a in (both, relu, rest, most) for b in (both, relu, rest, most)]:
        for op in ("nn.relu", "tanh", "exp", "sin"):
            assert accepts(left.without(right), op) == (accepts(left, op) and not accepts(right, op))
