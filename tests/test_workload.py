"""Workloads: calling, inputs, the comparison (and that it can fail), texts and drawings."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gsl
from gsl.errors import WorkloadError
from gsl.graph import Effect, Graph, Node, Origin, TensorType, Type
from gsl.graph.types import dim
from gsl.workload import TOLERANCES, Tolerance, Workload

torch = pytest.importorskip("torch")

F23 = TensorType((2, 3), "float32")


@dataclasses.dataclass(frozen=True)
class Fake:
    """A program that is a Python function, to have outputs of any kind without a graph."""

    function: Callable[..., Any]
    inputs: Mapping[str, Type | None] = dataclasses.field(default_factory=lambda: {"x": F23})
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    example_inputs: Sequence[Any] | None = None
    effect: Effect | None = None

    native = module = None
    casts_inputs = False

    def load(self) -> Graph:
        node = Node("f", name="f", effect=self.effect)
        return Graph([node], [node], lambda op, operands, attrs: None)

    def store(self, graph: Graph) -> Fake:
        return self

    def build(self, **options: Any) -> Callable[..., Any]:
        return self.function

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        raise NotImplementedError


def fake(function: Callable[..., Any], name: str = "old", **rest: Any) -> Workload:
    return Workload(Fake(function, **rest), name=name)


def differ(a: Callable[..., Any], b: Callable[..., Any], **rest: Any) -> str:
    """The reasons why two functions differ, or an empty text."""
    report = fake(a, **rest).compare(fake(b, "new", **rest))
    assert bool(report) is report.passed
    return "; ".join(f"{row.name}: {row.reason}" for row in report.failures)


def test_names_of_the_package() -> None:
    assert gsl.__getattr__("rules") is importlib.import_module("gsl.rules")
    with pytest.raises(AttributeError, match="did you mean 'optimize'"):
        _ = gsl.optimise
    with pytest.raises(AttributeError, match=r"did you mean 'SiLU'\? \(docs/operators.md lists them\)"):
        _ = gsl.op.Silu


# Calling ----------------------------------------------------------------------------------------------------------


def test_inputs_by_position_by_name_and_from_numpy() -> None:
    wl = fake(lambda x, y: x - y, inputs={"x": F23, "y": F23})
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(wl(x, y), x - y)
    assert torch.equal(wl(y=y, x=x), x - y)
    assert torch.equal(wl(x, y=y.numpy()), x - y)
    assert torch.equal(wl([x, y]), x - y)


def test_no_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    assert not fake(lambda x: x * weight, params={"weight": weight})(torch.ones(2, 3)).requires_grad


def test_build_returns_the_workload() -> None:
    wl = fake(lambda x: x)
    assert wl.build() is wl
    assert wl.build(mode="other") is wl


X = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((X, X, X), {}, "net takes 2 inputs (x: float32[2, 3], mask: bool[2]), but 3 were given"),
        ((X,), {"masc": X}, "net has no input 'masc'; did you mean 'mask'?"),
        ((X,), {"x": X}, "net: the input 'x' was given twice, by position and by name"),
        ((X,), {}, "net: no value for the input 'mask'; it takes (x: float32[2, 3], mask: bool[2])"),
        ((), {}, "net: no value for the input 'x', 'mask'; it takes (x: float32[2, 3], mask: bool[2])"),
        ((X[:, :2], X), {}, "net: the input 'x' should be float32[2, 3], but is float32[2, 2]"),
        ((X[0], X), {}, "net: the input 'x' should be float32[2, 3], but is float32[3]"),
        ((X.double(), X), {}, "net: the input 'x' should be float32[2, 3], but is float64[2, 3]; "
                              "convert it to float32 first"),
        ((np.zeros((2, 3)), X), {}, "net: the input 'x' should be float32[2, 3], but is float64[2, 3]; "
                                    "convert it to float32 first"),
        ((3, X), {}, "net: the input 'x' should be a tensor float32[2, 3], but is 3 of type int; "
                     "make it one with torch.tensor or numpy"),
    ],
)  # fmt: skip
def test_wrong_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    wl = fake(lambda x, mask: x, "net", inputs={"x": F23, "mask": TensorType((2,), "bool")})
    with pytest.raises(WorkloadError) as error:
        wl(*args, **kwargs)
    assert str(error.value) == message


def test_an_input_on_another_device_is_named() -> None:
    def run(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.contiguous() + torch.from_numpy(mask.numpy())

    wl = fake(run, "net", inputs={"x": F23, "mask": TensorType((2, 3), "float32")})
    with pytest.raises(WorkloadError) as error:
        wl(X, X.to("meta"))
    assert str(error.value) == "net: the input 'mask' should lie on cpu, but lies on meta; give it there"
    assert isinstance(error.value.__cause__, TypeError)
    with pytest.raises(RuntimeError, match="must match the size"):  # what fails for another reason
        fake(lambda x, y: x + y, "net", inputs={"x": F23, "y": TensorType((2,), "float32")})(X, torch.zeros(2))


def symbolic() -> tuple[Any, Any]:
    sympy = pytest.importorskip("sympy")
    return tuple(sympy.symbols("n m", positive=True, integer=True))


def test_symbolic_sizes_must_agree() -> None:
    n, m = symbolic()
    types = {"x": TensorType((dim(n), dim(m)), "float32"), "y": TensorType((dim(2 * n),), "float32")}
    wl = fake(lambda x, y: y, "net", inputs=types)
    assert wl(torch.zeros(3, 4), torch.zeros(6)).shape == (6,)
    with pytest.raises(WorkloadError, match=r"'y' should be float32\[2\*n\], but is float32\[5\] \(with n = 3, m = 4"):
        wl(torch.zeros(3, 4), torch.zeros(5))


# Random inputs ----------------------------------------------------------------------------------------------------


def test_random_inputs_fit_the_types_and_the_seed() -> None:
    types = {"x": F23, "h": TensorType((4,), "float16"), "i": TensorType((50,), "int64"), "b": TensorType((9,), "bool")}
    wl = fake(lambda *values: values, inputs=types)
    first, again, other = wl.random_inputs(), wl.random_inputs(), wl.random_inputs(seed=1)
    assert [str(v.dtype) for v in first] == ["torch.float32", "torch.float16", "torch.int64", "torch.bool"]
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    assert set(first[2].tolist()) == {0, 1}
    wl(*first)


def test_random_inputs_follow_the_examples() -> None:
    mask = torch.tensor([[0.0, -1e9, 0.0]])
    examples = (torch.tensor([3, 7, 5]), mask, 4, None)
    wl = fake(lambda *v: v, inputs={"i": None, "mask": None, "k": None, "n": None}, example_inputs=examples)
    drawn = [wl.random_inputs(seed=seed) for seed in range(20)]
    assert {v for d in drawn for v in d[0].tolist()} == {3, 4, 5, 6, 7}
    assert {v for d in drawn for v in d[1].flatten().tolist()} == {0.0, -1e9}
    assert all(d[2:] == (4, None) for d in drawn)


def test_random_inputs_lie_in_memory_as_dense_examples() -> None:
    image = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    examples = {"image": image, "turned": torch.zeros(3, 2).t(), "spread": torch.zeros(3, 1).expand(3, 2).t()}
    wl = fake(lambda *v: v, inputs=dict.fromkeys(examples), example_inputs=tuple(examples.values()))
    assert [v.stride() for v in wl.random_inputs()] == [image.stride(), (1, 2), (3, 1)]


def test_random_inputs_of_symbolic_sizes() -> None:
    n, _ = symbolic()
    types = {"x": TensorType((dim(n), 2), "float32"), "y": TensorType((dim(2 * n),), "float32")}
    wl = fake(lambda x, y: y, "net", inputs=types)
    assert [v.shape for v in wl.random_inputs(sizes={"n": 3})] == [(3, 2), (6,)]
    with pytest.raises(WorkloadError, match=r"size n of the input 'x' is symbolic; give it, as in sizes=\{'n': 4\}"):
        wl.random_inputs()
    with pytest.raises(WorkloadError, match="net has no symbolic size 'k'; known are n"):
        wl.random_inputs(sizes={"k": 3})
    known = fake(lambda x, y: y, inputs=types, example_inputs=(torch.zeros(5, 2), torch.zeros(10)))
    assert [v.shape for v in known.random_inputs()] == [(5, 2), (10,)]
    assert [v.shape for v in known.random_inputs(sizes={"n": 4})] == [(4, 2), (8,)]


def test_sizes_outside_of_the_range_for_which_a_program_was_made() -> None:
    n, _ = symbolic()

    class Ranged(Fake):
        size_ranges: Mapping[str, tuple[int, int | None]] = {"n": (2, 8)}

    def of(*sizes: Any) -> Workload:
        return Workload(Ranged(lambda x: x, inputs={"x": TensorType(tuple(map(dim, sizes)), "float32")}), name="net")

    assert of(n)(torch.zeros(8)).shape == (8,)
    message = "net: the input 'x' is float32.* with n from 2 to 8, but n = 9 was given; give another size, or export"
    for call in (lambda: of(n)(torch.zeros(9)), lambda: of(n).random_inputs(sizes={"n": 9}),
                 lambda: of(2 * n - 1)(torch.zeros(17))):  # fmt: skip
        with pytest.raises(WorkloadError, match=message):
            call()
    with pytest.raises(WorkloadError, match=r"should be float32\[2\*n - 1\], but is float32\[8\]$"):
        of(2 * n - 1)(torch.zeros(8))


def test_no_random_input_without_a_type() -> None:
    with pytest.raises(WorkloadError, match="the input 'x' has no known type"):
        fake(lambda x: x, inputs={"x": None}).random_inputs()


# Comparison -------------------------------------------------------------------------------------------------------


def test_equal_outputs_pass() -> None:
    report = fake(lambda x: x * 2).compare(fake(lambda x: x + x, "new"))
    assert report.passed
    assert report.check() is report
    assert [row.name for row in report.outputs] == ["result"]
    assert len(report.inputs) == 1
    assert str(report).startswith("old and new agree on 1 output of 1 run")


def bump(x: Any, where: tuple[int, ...], by: float) -> Any:
    y = x.clone()
    y[where] += by
    return y


def nan_at(x: Any, *where: tuple[int, ...]) -> Any:
    y = x.clone()
    for index in where:
        y[index] = math.nan
    return y


FAILS = {
    "value": (lambda x: x, lambda x: bump(x, (1, 2), 0.01), "result: 1 of 6 elements differ; expected "),
    "dtype": (lambda x: x, lambda x: x.double(), "result: dtype: expected float32[2, 3], found float64[2, 3]"),
    "shape": (lambda x: x, lambda x: x[None], "result: shape: expected float32[2, 3], found float32[1, 2, 3]"),
    "broadcast": (lambda x: x * 0, lambda x: x[:1] * 0, "result: shape: expected float32[2, 3], found float32[1, 3]"),
    "nan": (lambda x: x, lambda x: nan_at(x, (0, 1)), "found nan"),
    "nan here": (lambda x: nan_at(x, (0, 1)), lambda x: x, "expected nan"),
    "nan elsewhere": (lambda x: nan_at(x, (0, 1)), lambda x: nan_at(x, (1, 1)), "2 of 6 elements differ"),
    "all nan": (lambda x: x, lambda x: x * math.nan, "6 of 6 elements differ"),
    "inf": (lambda x: x, lambda x: bump(x, (0, 0), math.inf), "found inf"),
    "sign of inf": (lambda x: x - math.inf, lambda x: x + math.inf, "expected -inf, found inf"),
    "inf as a number": (lambda x: x * 0 + math.inf, lambda x: x * 0 + 3e38, "expected inf, found 3e+38"),
    "integers": (lambda x: x.long(), lambda x: x.long() + 1, "6 of 6 elements differ"),
    "large integers": (lambda x: x.long() * 0 + 2**60, lambda x: x.long() * 0 + 2**60 + 1, "6 of 6 elements differ"),
    "bool": (lambda x: x > 9, lambda x: x <= 9, "6 of 6 elements differ; expected False, found True"),
    "fewer": (lambda x: (x, x), lambda x: (x,), "[1]: the second workload has no such output"),
    "more": (lambda x: x, lambda x: (x, x), "[1]: only the second workload has this output: float32[2, 3]"),
    "none": (lambda x: (x, None), lambda x: (x, x), "[1]: expected None, found float32[2, 3]"),
    "number": (lambda x: 3, lambda x: 4, "result: expected 3, found 4"),
    "type of number": (lambda x: 1, lambda x: True, "result: expected 1, found True"),
    "swapped": (lambda x: {"a": x, "b": x + 1}, lambda x: {"a": x + 1, "b": x}, "a: 6 of 6"),
    "nested": (lambda x: {"a": (x, [x])}, lambda x: {"a": (x, [x + 1])}, "a[1][0]: 6 of 6 elements differ"),
    "small outputs": (lambda x: x * 0 + 2e-5, lambda x: x * 0 + 3e-5, "6 of 6 elements differ"),
    "beside huge ones": (lambda x: bump(x, (0, 0), -3e38), lambda x: bump(x, (0, 0), -3e38) * 1.01, "6 of 6"),
    "complex": (lambda x: x * 1j, lambda x: x * -1j, "6 of 6 elements differ"),
}


@pytest.mark.parametrize("case", FAILS)
def test_the_comparison_can_fail(case: str) -> None:
    a, b, reason = FAILS[case]
    assert reason in differ(a, b)


Named = collections.namedtuple("Named", "logits rest")


@dataclasses.dataclass
class Output:
    logits: Any
    cache: Any = None


PASSES = {
    "rounding": (lambda x: x / 3, lambda x: x * (1 / 3)),
    "nan at the same places": (lambda x: nan_at(x, (0, 1)), lambda x: nan_at(x, (0, 1))),
    "inf": (lambda x: x / 0, lambda x: x * math.inf),
    "integers": (lambda x: x.long(), lambda x: x.long()),
    "empty": (lambda x: x[:0], lambda x: x[:0]),
    "scalar": (lambda x: x.sum(), lambda x: x.sum()),
    "dict in another order": (lambda x: {"a": x, "b": x + 1}, lambda x: {"b": x + 1, "a": x}),
    "tuple and list": (lambda x: (x, x), lambda x: [x, x]),
    "named tuple and dict": (lambda x: Named(x, x), lambda x: {"logits": x, "rest": x}),
    "dataclass": (lambda x: Output(x), lambda x: Output(x)),
    "numpy": (lambda x: x, lambda x: x.numpy()),
    "numbers": (lambda x: (1, 2.5, None, math.nan), lambda x: (1, 2.5, None, math.nan)),
    "complex": (lambda x: x * 1j, lambda x: x * 1j),
}


@pytest.mark.parametrize("case", PASSES)
def test_the_comparison_can_pass(case: str) -> None:
    assert differ(*PASSES[case]) == ""


def test_where_and_how_much() -> None:
    new = fake(lambda x: bump(x * 0 + 4, (1, 2), 0.5), "new")
    report = fake(lambda x: x * 0 + 4).compare(new)
    (row,) = report.outputs
    assert (row.index, row.mismatched, row.elements) == ((1, 2), 1, 6)
    assert (row.max_abs, row.max_rel) == (0.5, 0.125)
    assert row.tolerance == TOLERANCES["float32"]
    assert str(report) == """\
old and new differ in 1 of 1 outputs of 1 run
run  output  type           max abs   max rel   at      result
0    result  float32[2, 3]  5.00e-01  1.25e-01  [1, 2]  FAILED: 1 of 6 elements differ; expected 4, found 4.5"""
    with pytest.raises(WorkloadError, match="FAILED: 1 of 6 elements differ"):
        report.check()
    assert "<td" in report._repr_html_()


def test_the_furthest_element_is_shown_before_the_one_with_the_largest_error() -> None:
    report = fake(lambda x: bump(x * 0 + 1, (0, 0), 1e9)).compare(fake(lambda x: bump(x * 0 + 1.1, (0, 0), 1e9)))
    assert report.outputs[0].index == (0, 1)


@pytest.mark.parametrize(("dtype", "relative"), [("float64", 1e-10), ("float32", 1e-3), ("float16", 1e-2),
                                                 ("bfloat16", 0.1)])  # fmt: skip
def test_tolerances_by_dtype(dtype: str, relative: float) -> None:
    def scaled(by: float) -> Callable[..., Any]:
        return lambda x: (x * 0 + 2.0).to(getattr(torch, dtype)) * (1 + by)

    assert "6 of 6 elements differ" in differ(scaled(0), scaled(relative))
    assert differ(scaled(0), scaled(relative / 100)) == ""


def test_tolerances_can_be_given() -> None:
    old, new = fake(lambda x: x * 0 + 1), fake(lambda x: x * 0 + 1.01)
    assert not old.compare(new)
    assert old.compare(new, rtol=0.02)
    assert old.compare(new, atol=0.02)
    assert old.compare(new, atol=0.02).outputs[0].tolerance == Tolerance(1e-5, 0.02)
    assert not fake(lambda x: x.long()).compare(fake(lambda x: x.long() + 1), atol=5.0)


def test_runs_are_isolated() -> None:
    def in_place(x: Any) -> Any:
        return x.add_(1)

    x = torch.zeros(2, 3)
    report = fake(in_place).compare(fake(in_place), inputs=[x])
    assert report.passed
    assert [row.name for row in report.outputs] == ["result", "input x afterwards"]
    assert torch.equal(x, torch.zeros(2, 3))


def test_a_lost_side_effect_is_found() -> None:
    assert "input x afterwards: 6 of 6 elements differ" in differ(lambda x: x.add_(1), lambda x: x + 1)
    assert "input x afterwards: 6 of 6 elements differ" in differ(lambda x: x + 1, lambda x: x.add_(1))


def test_buffers_are_compared_and_restored() -> None:
    count = torch.zeros(())
    weight = torch.nn.Parameter(torch.zeros(()))

    def counts(by: int) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            count.add_(by)
            weight.add_(by)
            return x + count + weight

        return run

    rest: dict[str, Any] = {"params": {"count": count, "weight": weight}, "effect": Effect.MUTATES}
    assert differ(counts(1), counts(1), **rest) == ""
    assert "state count afterwards: 1 of 1" in differ(counts(1), counts(2), **rest)
    assert (count.item(), weight.item()) == (0, 0)


def test_random_operators_draw_the_same_and_leave_the_generator() -> None:
    state = torch.get_rng_state()
    assert differ(torch.rand_like, torch.rand_like) == ""
    assert torch.equal(torch.get_rng_state(), state)
    assert "differ" in differ(torch.rand_like, lambda x: (torch.rand(1), torch.rand_like(x))[1])


def test_the_example_and_a_variation_are_compared() -> None:
    examples = (torch.zeros(2, 3), torch.tensor([0, 1]))
    inputs = {"x": F23, "i": TensorType((2,), "int64")}
    report = fake(lambda x, i: x, inputs=inputs, example_inputs=examples).compare(fake(lambda y, i: -y, inputs=inputs))
    assert [(row.run, row.passed) for row in report.outputs] == [(0, True), (1, False)]
    assert torch.equal(report.inputs[0][0], examples[0])
    assert torch.equal(report.inputs[1][1], examples[1])


def test_inputs_are_matched_by_name_where_the_names_agree() -> None:
    types = {"x": F23, "y": F23}
    old = fake(lambda x, y: x - y, inputs=types)
    assert old.compare(fake(lambda y, x: x - y, inputs={"y": F23, "x": F23}))
    assert old.compare(fake(lambda a, b: a - b, inputs={"a": F23, "b": F23}))
    assert old.compare(old, {"y": X, "x": X})


def test_what_can_not_be_compared() -> None:
    with pytest.raises(WorkloadError, match=r"old takes 1 inputs \(x\), but new takes 2 \(x, y\)"):
        fake(lambda x: x).compare(fake(lambda x, y: x, "new", inputs={"x": F23, "y": F23}))
    with pytest.raises(WorkloadError, match=r"needs another Workload, but got function; make it one with Workload\.f"):
        fake(lambda x: x).compare(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda wl: wl.compare(wl, rtol="1e-3"), "rtol= is a number, 0 or more, got '1e-3'"),
        (lambda wl: wl.compare(wl, atol=-1.0), "atol= is a number, 0 or more, got -1.0"),
        (lambda wl: wl.compare(wl, seed="1"), "seed= is a whole number, or a list of such, got '1'"),
        (lambda wl: wl.compare(wl, sizes=4), r"sizes= gives symbolic sizes by name, as \{'batch': 4\}, got 4"),
        (lambda wl: wl.random_inputs(seed=0.5), "seed= is a whole number, got 0.5"),
        (lambda wl: wl.before_after("new.svg"), "before_after needs another Workload, but got str"),
        (lambda wl: wl.visualize(matches=3), r"matches= of .*visualize is Mapping\[.*\] \| None, got 3"),
        (lambda wl: wl.visualize(expand=3), r"expand= of .*visualize is str \| Sequence\[str\], got 3"),
        (lambda wl: wl.cost("analytic").by(["op"]), "grouping= of .*by is one of 'operator', 'module', 'call', got"),
        (lambda wl: wl.with_operators("a"), "operators= takes operators that @gsl.operator declared, got 'a'"),
    ],
)  # fmt: skip
def test_arguments_of_another_kind(call: Callable[[Workload], Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        call(fake(lambda x: x))


def test_a_comparison_of_nothing_says_so() -> None:
    report = fake(lambda x: x * math.nan).compare(fake(lambda x: x * math.nan))
    assert "all NaN: nothing was compared" in str(report)
    assert not report


# Texts and drawings -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Drawn(Fake):
    """A program with a small view of its own."""

    def load(self) -> Graph:
        from gsl.spec import TABLE

        x = Node("input", type=TensorType((2, 3, 8, 8), "float32"), name="x")
        w = Node("param", type=TensorType((4, 3, 1, 1), "float32"), name="conv1.weight", attrs={"value": None})
        attrs = TABLE["nn.conv2d"].complete({"strides": (2, 2)}, (x.type, w.type))
        conv = Node("nn.conv2d", (x, w), attrs, TensorType((2, 4, 4, 4), "float32"), name="conv2d")
        two = Node("const", attrs={"value": 2.0}, name="two")
        add = Node("add", (conv, two), TABLE["add"].complete({}, (conv.type, None)), conv.type, name="add")
        noise = Node(torch.ops.aten.rand_like.default, (add,), name="noise", effect=Effect.RANDOM)
        return Graph([x, w, conv, two, add, noise], [noise], lambda op, operands, attrs: None)


@pytest.fixture
def drawn() -> Workload:
    return Workload(Drawn(lambda x: x), name="net")


def test_defaults_and_derived_attributes_are_left_out(drawn: Workload) -> None:
    assert str(drawn) == """\
%x: float32[2, 3, 8, 8] = input
%conv1.weight: float32[4, 3, 1, 1] = param
%conv2d: float32[2, 4, 4, 4] = nn.conv2d(%x, %conv1.weight, strides=(2, 2))
%add: float32[2, 4, 4, 4] = add(%conv2d, 2.0)
%noise = aten.rand_like.default(%add) !random
return %noise"""
    full = drawn.text(full=True)
    assert "padding=(0, 0, 0, 0)" in full
    assert "kernel_size=(1, 1)" in full


def test_operators_are_counted(drawn: Workload) -> None:
    assert list(drawn.op_counts().items()) == [("add", 1), ("aten.rand_like.default", 1), ("nn.conv2d", 1)]


def test_the_drawing(drawn: Workload) -> None:
    conv = drawn.graph.nodes[2]
    svg = drawn.visualize(highlight={conv: "#ff0000"}).svg
    for text in ("nn.conv2d", "strides=(2, 2)", "float32[2, 4, 4, 4]", "add(·, 2.0)", "conv1.weight"):
        assert f">{text}</text>" in svg
    assert svg.count('fill="#ff0000"') == 1
    assert "conv1.weight" not in drawn.visualize(params=False).svg


def test_new_nodes_tell_who_made_them(drawn: Workload) -> None:
    drawn.graph.nodes[4].origin = Origin("fold <it>", ())
    assert "made by the rule fold &lt;it&gt;" in drawn.visualize().svg


def test_a_foreign_node_can_not_be_highlighted(drawn: Workload) -> None:
    with pytest.raises(WorkloadError, match=r"take it from wl\.graph"):
        drawn.visualize(highlight={Node("add", name="a"): "#ff0000"})


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".dot", b"digraph")]
)
def test_a_picture_is_written(drawn: Workload, tmp_path: Path, suffix: str, magic: bytes) -> None:
    drawn.visualize(tmp_path / f"net{suffix}")
    assert (tmp_path / f"net{suffix}").read_bytes().startswith(magic)


def test_a_drawing_is_written_where_a_link_leads(drawn: Workload, tmp_path: Path) -> None:
    (tmp_path / "link.dot").symlink_to(tmp_path / "net.dot")
    drawn.visualize(tmp_path / "link.dot")
    assert (tmp_path / "link.dot").is_symlink()
    assert (tmp_path / "net.dot").read_text().startswith("digraph")


def test_a_drawing_in_a_folder_that_is_not_there(drawn: Workload, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"can't write a drawing: there is no folder .*/none$"):
        drawn.visualize(tmp_path / "none" / "net.dot")


def test_the_name_of_a_workload_is_a_string(drawn: Workload) -> None:
    with pytest.raises(WorkloadError, match="the name of a workload is a string, got 3 of type int"):
        Workload(drawn.program, name=3)  # type: ignore[arg-type]


def test_a_drawing_of_an_unknown_format(drawn: Workload, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"'net.doc': its suffix should be one of .svg, .png, .pdf, .dot"):
        drawn.visualize(tmp_path / "net.doc")


def test_in_a_notebook_a_large_view_is_summed_up(drawn: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn._repr_html_() is None
    assert str(drawn._repr_svg_()).startswith("<svg")
    monkeypatch.setattr("gsl.workload.workload.DRAWABLE", 2)
    assert drawn._repr_svg_() is None
    assert "<tr><td>nn.conv2d</td><td>1</td></tr>" in str(drawn._repr_html_())


def test_short_form(drawn: Workload) -> None:
    assert repr(drawn) == "<Workload net: 1 input, 0 params>"


# With torch -------------------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x: Any, scale: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        return {"pooled": y.mean((2, 3)), "logits": (self.fc(y.mean((2, 3))) * scale,)}


def net_inputs() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(2, 3, 4, 4), torch.randn(2)


def made(how: str, *, training: bool = False, seed: int = 0) -> Workload:
    torch.manual_seed(seed)
    net = Net().train(training)
    match how:
        case "from_torch":
            return Workload.from_torch(net, net_inputs())
        case "from_exported":
            return Workload.from_exported(torch.export.export(net, net_inputs()), name="Net")
        case "from_fx":
            return Workload.from_fx(torch.fx.symbolic_trace(net), net_inputs())
        case _:
            return Workload(torch.fx.symbolic_trace(net))


@pytest.mark.parametrize("how", ["from_torch", "from_exported", "from_fx", "Workload"])
def test_workloads_of_modules(how: str) -> None:
    wl = made(how)
    x, scale = net_inputs()
    assert wl.name == "Net"
    assert list(wl.inputs) == ["x", "scale"]
    assert set(wl.params) >= {"conv.weight", "norm.running_mean", "fc.bias"}
    with pytest.raises(TypeError):
        wl.params["conv.weight"] = None  # type: ignore[index]
    assert isinstance(wl.mod, torch.fx.GraphModule)
    result = wl(x, scale=scale)
    assert {key: type(value) for key, value in result.items()} == {"pooled": torch.Tensor, "logits": tuple}
    report = wl.compare(wl, None if how != "Workload" else (x, scale)).check()
    assert [row.name for row in report.outputs][:2] == ["pooled", "logits[0]"]
    assert "nn.conv2d(%x, %" in str(wl)
    assert wl.op_counts()["nn.conv2d"] == 1


@pytest.mark.parametrize("how", ["from_torch", "from_fx"])
def test_a_stored_view_is_the_same_program(how: str) -> None:
    wl = made(how)
    new = wl.replace(wl.graph.copy(), name="new")
    assert new.name == "new"
    assert str(new) == str(wl)
    assert wl.compare(new).check()


@pytest.mark.parametrize("how", ["from_torch", "from_fx"])
def test_a_changed_weight_is_found(how: str) -> None:
    wl, other = made(how), made(how, seed=1)
    with pytest.raises(WorkloadError, match=r"logits\[0\] .* FAILED"):
        wl.compare(other).check()


@pytest.mark.parametrize("how", ["from_torch", "from_fx"])
def test_training_changes_nothing_that_stays(how: str) -> None:
    wl = made(how, training=True)
    before = {name: value.clone() for name, value in wl.params.items()}
    report = wl.compare(wl).check()
    assert "state norm.running_mean afterwards" in [row.name for row in report.outputs]
    assert all(torch.equal(before[name], value) for name, value in wl.params.items())


def test_an_option_with_which_nothing_is_built() -> None:
    wl = Workload.from_torch(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(WorkloadError, match=r"ReLU can't be built with runtime=: .*unexpected keyword argument"):
        wl.build(runtime="onnxruntime")


def test_the_exported_program() -> None:
    assert isinstance(made("from_torch").exported, torch.export.ExportedProgram)
    with pytest.raises(WorkloadError, match=r"Net is of type .*, not an ExportedProgram; make the workload with "):
        _ = made("from_fx").exported


def test_symbolic_sizes_of_an_exported_program() -> None:
    from torch.export import Dim

    wl = Workload.from_torch(torch.nn.Linear(3, 2), (torch.zeros(5, 3),), dynamic_shapes={"input": {0: Dim("batch")}})
    assert wl(torch.zeros(7, 3)).shape == (7, 2)
    (type,) = wl.inputs.values()
    assert isinstance(type, TensorType)
    symbol = str(type.shape[0])
    assert wl.random_inputs(sizes={symbol: 9})[0].shape == (9, 3)
    assert wl.compare(wl, wl.random_inputs(sizes={symbol: 9}))


def test_an_input_with_a_default_may_be_left_out() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, scale: Any = None) -> Any:
            return x if scale is None else x * scale

    class Default(torch.nn.Module):
        def forward(self, x: Any, scale: float = 2.0) -> Any:
            return x * scale

    assert Workload.from_torch(Scaled(), (X,))(X).shape == (2, 3)
    assert torch.equal(Workload(torch.fx.symbolic_trace(Default()))(X + 1), X + 2)


def test_structured_inputs_are_taken_as_they_are() -> None:
    class Pair(torch.nn.Module):
        def forward(self, pair: Any, flags: Any) -> Any:
            return pair[0] + pair[1] * flags["a"] + flags["b"]

    args = ([X, X + 1], {"a": X + 2, "b": X})
    wl = Workload.from_torch(Pair(), args)
    assert torch.equal(wl(*args), X + 2)
    assert wl.compare(wl).check()
    with pytest.raises(WorkloadError, match=r"\['b'\] of an argument is not the input 'flags_a'; give the inputs by"):
        wl(args[0], {"b": X, "a": X})


Fields = collections.namedtuple("Fields", ["a", "b"])


@dataclasses.dataclass
class Data:
    a: Any
    b: Any


torch.export.register_dataclass(Data)


@pytest.mark.parametrize("load", ["exported", "traced"])
@pytest.mark.parametrize("given", [Fields(X, {"c": X + 1}), Data(X, {"c": X + 1})], ids=["namedtuple", "dataclass"])
def test_named_tuples_and_dataclasses_are_inputs(given: Any, load: str) -> None:
    class Net(torch.nn.Module):
        def forward(self, data: Any, y: Any) -> Any:
            return data.a + data.b["c"] * y

    net, args = Net(), (given, X)
    is_exported = load == "exported"
    wl = Workload.from_torch(net, args) if is_exported else Workload.from_fx(torch.fx.symbolic_trace(net), args)
    assert torch.equal(wl(*args), X + (X + 1) * X)
    assert wl.compare(wl, args).check()
