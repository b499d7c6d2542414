"""Programs of which no rule can be made: what was expected and found, where, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsl import Subst, op, pat
from gsl.errors import PatternError
from gsl.rules import IDIOMS
from tests.programs.functions import SHAPES, eager, fused, rms

HERE = "test_errors.py"


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return torch.relu(x)
    return -x


def looks(x: Tensor) -> Tensor:
    return x * x.max().item()


def mutates(x: Tensor) -> Tensor:
    x += 1
    return x.exp()


def returns_a_number(x: Tensor) -> Any:
    return x.exp(), x.shape[0]


def branches_on_a_size(x: Tensor) -> Tensor:
    return x.exp() if x.shape[0] > 100 else x.sin()


def same(x: Tensor) -> Tensor:
    return x.exp().log()


def joins(xs: Any) -> Tensor:
    return torch.cat(xs)


def stacks(xs: list[Tensor]) -> Tensor:
    return torch.stack([xs[0], xs[1]])


def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), y.exp() + x.exp()


def line_of(text: str) -> int:
    """The line of this file that has a text, as the last part of it."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(text))


@pytest.mark.parametrize(
    ("function", "line", "message"),
    [
        (branches, "if x.sum() > 0:", "looks at the value of a tensor, which no graph tells"),
        (looks, "return x * x.max().item()", "write a rule for each branch, or torch.where"),
        (mutates, "x += 1", "changes its argument x in place"),
    ],
)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_function_that_is_no_graph(function: Callable[..., Any], line: str, message: str, side: str) -> None:
    programs = (function, same) if side == "before" else (same, function)
    with pytest.raises(PatternError) as error:
        Subst.from_programs(*programs)
    text = str(error.value)
    assert message in text
    assert text.startswith(f"{side} {function.__name__} ({HERE}:")
    assert f"{HERE}:{line_of(line)}: " in text


def message(before: Any, after: Any, **given: Any) -> str:
    """The message of the error for two programs."""
    with pytest.raises(PatternError) as error:
        Subst.from_programs(before, after, **given)
    return str(error.value)


def test_sizes_that_contradict_each_other() -> None:
    text = message(eager, fused, **{**SHAPES, "k": "b h m e"})
    assert f"{HERE}" not in text
    assert re.search(r"before eager \(functions.py:\d+\): functions.py:\d+: RuntimeError", text)
    assert "k='b h m e'" in text
    assert "sizes of different names are different" in text
    assert "q: float32[" in text


def test_shapes_that_contradict_each_other() -> None:
    def before(x: Float[Tensor, "b n"]) -> Tensor:  # noqa: F722, F821
        return torch.relu(x)

    text = message(before, lambda x: x.relu6(), x="b n d")
    assert "the shapes that are said of x contradict each other: 'b n' (before before" in text
    assert "'b n d'" in text


def test_a_shape_that_is_needed() -> None:
    def conv(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w).relu()

    text = message(conv, conv)
    assert "nothing is said of the shape of x, w" in text
    assert "give" in text


def test_parameters_that_differ() -> None:
    text = message(eager, lambda q, k, v, *, scale: q, **SHAPES)
    assert "both have the same; as tensors, before eager" in text
    assert "has (q, k, v, mask)" in text
    text = message(eager, lambda q, k, v, mask, *, factor: q, **SHAPES)
    assert "as keyword-only literals, before eager" in text
    assert "has (factor)" in text


def test_numbers_of_outputs_that_differ() -> None:
    text = message(two, lambda x, y: x)
    assert "before two" in text
    assert "returns 2 and after <lambda>" in text
    assert "returns 1" in text


def test_a_parameter_that_only_the_target_uses() -> None:
    text = message(lambda x, y: x.exp().log(), lambda x, y: x + y)
    assert "uses the parameter y, which before <lambda>" in text
    assert "no match tells what it is" in text


def test_a_target_of_another_shape() -> None:
    text = message(same, lambda x: x.sum(-1), x="b n")
    assert "output 0 is float32[11, 13] of before same" in text
    assert "and float32[11] of after <lambda>" in text
    text = message(same, lambda x: x.double(), x="b n")
    assert "float64[11, 13]" in text
    assert "both need the same shape and dtype" in text


def test_literals_that_are_none() -> None:
    def before(x: Tensor, *, factor: Any = nn.Identity()) -> Tensor:  # noqa: B008
        return torch.relu(x)

    text = message(before, before)
    assert f"{HERE}:" in text
    assert "the keyword-only parameter factor is Identity(), which is no literal" in text

    def scaled(x: Tensor, *, factor: float) -> Tensor:
        return torch.relu(x) * factor

    def strided(x: Tensor, *, stride: tuple[int, ...]) -> Tensor:
        return torch.as_strided_copy(x, x.shape, stride)

    assert "values of stride are not known: give some to try, as stride=[(1, 1), (2, 3)]" in message(strided, strided)
    assert "so it is a literal: expected a list" in message(scaled, scaled, factor="b n")
    assert "so it is a literal" in message(scaled, scaled, factor=pat.Const())


def test_a_parameter_with_the_name_of_an_option() -> None:
    def before(x: Tensor, *, approximate: str) -> Tensor:
        return torch.relu(F.gelu(x, approximate=approximate))

    def tensor(doc: Tensor) -> Tensor:
        return torch.relu(doc)

    text = message(before, before, approximate=["none", "tanh"])
    assert text.startswith("approximate=['none', 'tanh']: before before (test_errors.py:")
    assert text.endswith("takes it as an option of the rule: give the parameter another name in both programs")
    assert "option of the rule" in message(tensor, tensor, doc="b n")


def test_a_literal_that_the_source_does_not_tell() -> None:
    def before(x: Tensor, *, factor: float) -> Tensor:
        return torch.relu(x) * (factor * 3 + 1)

    text = message(before, lambda x, *, factor: torch.relu(x * factor))
    assert "computes tells factor as it is" in text
    assert "use the value itself there" in text


def test_an_expression_that_fits_the_values_that_were_tried_by_chance() -> None:
    def after(x: Tensor, *, a: float, b: float) -> Tensor:
        return (x + b / a) * a

    with pytest.raises(PatternError, match=r"value is -1.0 for x: .*, a=-2.0, b=2.0, and the expression .* is -2.0 th"):
        Subst.from_programs(lambda x, *, a, b: x * a + b, after, x="n", a=[-1.0, -2.0], b=[1.0, 2.0])


def test_an_attribute_that_follows_from_nothing() -> None:
    sizes = iter(range(1, 1000))

    def before(x: Tensor) -> Tensor:
        return torch.relu(x) * next(sizes) ** 2.5

    text = message(before, lambda x: x, x="a b")
    assert "no expression of sizes was found for it" in text
    assert "give it as a keyword-only parameter" in text


def test_a_branch_on_a_size() -> None:
    text = message(branches_on_a_size, lambda x: x.cos(), x="n d")
    assert "computes other calls for other sizes: sin with x: float32[11, 13], and exp with x: float32[401" in text


def test_another_form_beside_other_rules() -> None:
    """It is that of a norm only where the weight does not broadcast the data."""

    def program(x: Tensor, y: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
        return rms(x + y, weight, eps=eps), x + y

    text = message(program, program, weight="d", beside=IDIOMS)
    assert "computes other calls for other sizes: input with x: float32[1, 11]" in text


def test_sizes_of_which_nothing_says_whether_they_are_equal() -> None:
    def before(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * q.shape[-1] ** -0.5

    text = message(before, lambda q, k: q * q.shape[-1] ** -0.5 @ k.mT)
    assert "axis -1 of q or from axis -1 of k" in text
    assert "give both a shape of named sizes" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *x: x[0], "*x stands for any number of parameters"),
        (returns_a_number, "expected that it returns a tensor or a tuple of tensors, but found a int"),
        (3, "expected a function of tensors, a module of torch, a workload"),
        (op.ReLU(pat.Wildcard()), "got nn.relu(Wildcard); of patterns, a rule is Subst(source, target)"),
        (torch.relu, "its parameters are not known"),
        (stacks, "is no tensor, and each parameter before * is one: give each tensor of a list a parameter"),
    ],
)
def test_what_is_no_program(function: Any, message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)):
        Subst.from_programs(function, same)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (joins, "a list of tensors is expected where a parameter stands, and each parameter is one tensor: give each"),
        (lambda x, axes: x.sum(axes), "a number, or a list of them, stands after it, as in f(x, *, axes)"),
    ],
)
def test_a_parameter_that_is_no_tensor(function: Any, message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)):
        Subst.from_programs(function, function)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": "b n"}, "y= is no parameter of before same"),
        ({"x": "b n-1"}, "'n-1' is no size"),
        ({"x": 3}, "expected a shape such as 'b n d', a pattern, or both"),
        ({"x": "half[b]"}, "half is no dtype"),
        ({"beside": "normal"}, "beside= is a rule or a RuleSet, got 'normal'"),
    ],
)
def test_what_is_given_for_parameters(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)):
        Subst.from_programs(same, same, **given)


def test_finished_programs_say_their_shapes() -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return same(x)

    exported = torch.export.export(Same(), (torch.randn(3, 4),))
    assert "a finished graph says the shapes of its inputs itself" in message(exported, exported, x="b n")
    other = torch.export.export(Same(), (torch.randn(3, 5),))
    assert "axis 1 of x is 5, and elsewhere 4" in message(exported, other)
