"""Declarations that can't be: what was expected, what was found, where, and the mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import gsl
from gsl.errors import PatternError

LIBRARY = torch.library.Library("gsl_errors", "DEF")
LIBRARY.define("scale(Tensor x, float factor=2.0) -> Tensor")
LIBRARY.impl("scale", lambda x, factor=2.0: x * factor, "CompositeExplicitAutograd")
LIBRARY.define("blind(Tensor x) -> Tensor")


def branches(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def mutates(x: Tensor) -> Tensor:
    x.add_(1.0)
    return x * 2.0


def no_annotation(x, *, eps: float = 1e-6) -> Tensor:  # type: ignore[no-untyped-def]
    return x + eps  # type: ignore[no-any-return]


def no_result(x: Tensor):  # type: ignore[no-untyped-def]
    return x + 1.0


def positional(x: Tensor, eps: float = 1e-6) -> Tensor:
    return x + eps


def object_attribute(x: Tensor, *, kind: object = None) -> Tensor:
    return x + 1.0


def tensor_default(x: Tensor, *, eps: float = torch.ones(1)) -> Tensor:  # type: ignore[assignment]
    return x + eps


def keyword_tensor(x: Tensor, *, y: Tensor) -> Tensor:
    return x + y


def any_number(*x: Tensor) -> Tensor:
    return x[0]


def any_results(x: Tensor) -> tuple[Tensor, ...]:
    return x, x


def no_tensor(x: Tensor) -> float:
    return 1.0


def scale(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return x * factor


def other_value(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return x * factor + 1.0


def other_shape(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return (x * factor).sum(-1)


def other_name(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def other_type(x: Tensor, *, factor: int = 2) -> Tensor:
    return x * factor


def other_default(x: Tensor, *, factor: float = 3.0) -> Tensor:
    return x * factor


def lacks(x: Tensor) -> Tensor:
    return x * 2.0


def two(x: Tensor, *, factor: float = 2.0) -> tuple[Tensor, Tensor]:
    return x * factor, x


CASES: list[tuple[str, Callable[..., Any], str]] = [
    ("gsl_errors::new", branches, r"test_errors.py:\d+.*looks at the value of a tensor.*torch.where"),
    ("gsl_errors::new", mutates, r"test_errors.py:\d+.*add_ changes its argument x in place.*add for add_"),
    ("gsl_errors::new", no_annotation, r"the parameter x has no annotation: annotate tensors with Tensor"),
    ("gsl_errors::new", no_result, r"the result has no annotation: -> Tensor"),
    ("gsl_errors::new", positional, r"eps is annotated with float.*put a \* before them"),
    ("gsl_errors::new", object_attribute, r"kind is annotated with object, which is no literal: expected float, int"),
    ("gsl_errors::new", tensor_default, r"the default of eps is no literal of its type: expected a number"),
    ("gsl_errors::new", keyword_tensor, r"y is a tensor, so it is a positional parameter: put it before the \*"),
    ("gsl_errors::new", any_number, r"stands for any number of parameters; write them out"),
    ("gsl_errors::new", any_results, r"expected Tensor, or a tuple of so many of them"),
    ("gsl_errors::new", no_tensor, r"it returns float: expected Tensor"),
    ("gsl_errors::scale", other_value, r"not what the operator of torch computes: result 0 at \[.*\] is .* by the "
                                       r"meaning, and .* by the kernel"),
    ("gsl_errors::scale", other_shape, r"result 0 is .* by the meaning, and .* by the kernel"),
    ("gsl_errors::scale", other_name, r"which has no argument by; the parameters .* names of the schema: x, factor"),
    ("gsl_errors::scale", other_type, r"where factor is of type float, but the meaning says int"),
    ("gsl_errors::scale", other_default, r"factor has the default 2.0, but the meaning has 3.0"),
    ("gsl_errors::scale", two, r"returns 1 tensors, but the meaning returns 2"),
    ("rms_norm", scale, r"@gsl.operator\('rms_norm'\): expected a namespace and a name.*'vllm::rms_norm'"),
    ("gsl_errors::", scale, "expected a namespace and a name"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "message"), CASES, ids=[f.__name__ for _, f, _ in CASES])
def test_refused_with_the_reason(name: str, function: Callable[..., Any], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        gsl.operator(name)(function)


def test_what_is_right_is_taken() -> None:
    assert gsl.operator("gsl_errors::scale")(scale).torch_op is torch.ops.gsl_errors.scale.default
    # An argument with a default may be left out: calls that give it another value stay as they are.
    assert gsl.operator("gsl_errors::scale")(lacks).spec.attrs == {}


def test_an_operator_without_a_kernel_here_is_taken_at_its_word() -> None:
    made = gsl.operator("gsl_errors::blind")(lacks)
    assert made.torch_op is torch.ops.gsl_errors.blind.default


def test_what_is_said_of_parameters() -> None:
    with pytest.raises(PatternError, match="y= is no parameter of the function: known are factor, x"):
        gsl.operator("gsl_errors::scale", y="b d")(scale)
    with pytest.raises(PatternError, match="x=3: expected a shape of named sizes"):
        gsl.operator("gsl_errors::scale", x=3)(scale)
    with pytest.raises(PatternError, match="is no size: expected a name, a number"):
        gsl.operator("gsl_errors::scale", x="b -d")(scale)


def test_it_is_put_on_a_function() -> None:
    with pytest.raises(PatternError, match="is a function of tensors, got"):
        gsl.operator("gsl_errors::new")(torch.nn.ReLU())  # type: ignore[arg-type]


def three_for_two(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2.0, x * 3.0, x * 4.0  # type: ignore[return-value]


def two_for_one(x: Tensor) -> Tensor:
    return x * 2.0, x * 3.0  # type: ignore[return-value]


def no_default(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else x + y


def in_the_middle(x: Tensor | None = None, y: Tensor = 1) -> Tensor:  # type: ignore[assignment]
    return x + y  # type: ignore[operator]


def kinds(x: Tensor, *, mode: str = "relu") -> Tensor:
    return torch.relu(x) if mode == "relu" else torch.tanh(x)


@pytest.mark.parametrize(("function", "message"), [
    (three_for_two, r"test_errors.py:\d+\): it returns 3 tensors, but is annotated with 2 tensors"),
    (two_for_one, "it returns 2 tensors, but is annotated with 1 tensor$"),
    (no_default, r"the tensor y may be None, so .* give it the default None, y: Tensor \| None = None"),
    (in_the_middle, "the default of the tensor y can only be None"),
])  # fmt: skip
def test_what_annotations_say_is_so(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        gsl.operator("gsl_errors::annotated")(function)


@pytest.mark.parametrize("values", ["relu", [], ["relu"], {"relu", "tanh"}])
def test_values_to_try_are_a_list(values: Any) -> None:
    with pytest.raises(PatternError, match="mode is an attribute: expected a list of two or more values to try"):
        gsl.operator("gsl_errors::kinds", mode=values)(kinds)
    with pytest.raises(PatternError, match="1 is no value of it: expected a string, found 1"):
        gsl.operator("gsl_errors::kinds", mode=["relu", 1])(kinds)


def test_a_fixed_value_is_one_of_the_attribute() -> None:
    made = gsl.operator("gsl_errors::kinds", mode=["relu", "tanh"])(kinds)
    with pytest.raises(PatternError, match=r"test_errors.py:\d+\): gsl_errors::kinds: mode: expected .*, found 3$"):
        made.recognise(mode=3)
    with pytest.raises(PatternError, match=r"mode: expected a string, found None$"):
        made.lower(mode=None)
    assert made.recognise(mode="relu").name == "recognise kinds"


def test_what_is_commutative_is_tried() -> None:
    def difference(x: Tensor, y: Tensor) -> Tensor:
        return x - y

    with pytest.raises(PatternError, match=r"is not commutative: result 0 at \[.*\] is .* as it is, and .* exchanged"):
        gsl.operator("gsl_errors::difference", traits="commutative")(difference)
    with pytest.raises(PatternError, match="a commutative operator has two operands, and this has 1 tensor"):
        gsl.operator("gsl_errors::single", traits="commutative")(lacks)


@pytest.mark.parametrize("names", [["x", "x"], [3], ["x y"], ""])
def test_the_arguments_that_are_written_have_names(names: Any) -> None:
    with pytest.raises(PatternError, match="expected the names of the arguments that the operator writes, each once"):
        gsl.operator("gsl_errors::writes", mutates_args=names)(lacks)


def test_a_call_on_tensors_that_does_not_fit() -> None:
    made = gsl.operator("gsl_errors::kinds", mode=["relu", "tanh"])(kinds)
    with pytest.raises(PatternError, match=r"test_errors.py:\d+: gsl_errors::kinds: mode: expected a string, found 3"):
        made(torch.ones(2), mode=3)
    with pytest.raises(PatternError, match="kinds takes 1 tensors"):
        made(torch.ones(2), torch.ones(2))


def test_an_operator_without_operands_has_no_rules() -> None:
    @gsl.operator("gsl_errors::nothing")
    def nothing() -> Tensor:
        return torch.zeros(3)

    with pytest.raises(PatternError, match="it has no operands, so there are no rules"):
        nothing.recognise()
