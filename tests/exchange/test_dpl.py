"""Patterns of Relax's dataflow pattern language: the same groups as ``FuseOpsByPattern`` makes, in the same run."""

from __future__ import annotations

import importlib
from collections import Counter
from functools import cache
from typing import Any, Final

import pytest
from tvm import relax, te
from tvm.relax.backend import get_patterns_with_prefix
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FuseOpsByPattern, FusionPattern

from gsl import RuleSet, Workload
from gsl.errors import ExchangeError
from gsl.exchange import from_dpl
from tests.front.relax.relax_helpers import function, tensor

for _module in ("cuda.cublas", "cuda.cudnn", "cuda.cutlass", "rocm.hipblas", "metal.coreml", "contrib.nnapi",
                "contrib.tensorrt", "contrib.example_npu", "adreno.clml"):  # fmt: skip
    importlib.import_module(f"tvm.relax.backend.{_module}")

op = relax.op
REFUSED: Final = {
    "cutlass": {"cutlass.stacked_attention": 2}, "tensorrt": {"tensorrt.concatenate": 1},
    "example_npu": {"example_npu.batch_norm": 1},
}  # fmt: skip
"""The patterns that can't be taken over, by back end, with their numbers."""
ADD_RELU: Final = is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))


def groups_of(module: Any) -> Counter[str]:
    """The names of the groups that a module calls, once for each call."""
    names = {var: str(f.attrs["Composite"]) for var, f in module.functions.items() if "Composite" in (f.attrs or {})}
    calls = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    return Counter(names[call.op] for call in calls if isinstance(call, relax.Call) and call.op in names)


# ---------------------------------------------------------------- graphs that contain the patterns


def chain(x: Any, weights: list[Any], steps: str, **conv: Any) -> Any:
    """A function of steps, each by the name of a call; ``weights`` are taken by those that have some."""
    given, unused = [x, *weights], iter(weights)

    def body(b: Any, *vars: Any) -> Any:
        last = vars[0]
        for step in steps.split():
            match step:
                case "matmul":
                    last = b.emit(op.matmul(last, next(unused)))
                case "linear":
                    last = b.emit(op.matmul(last, b.emit(op.permute_dims(next(unused)))))
                case "conv":
                    last = b.emit(op.nn.conv2d(last, next(unused), **conv))
                case "add" | "multiply":
                    last = b.emit(getattr(op, step)(last, next(unused)))
                case "max_pool2d" | "avg_pool2d":
                    last = b.emit(getattr(op.nn, step)(last, (2, 2), (2, 2)))
                case "softmax" | "relu" | "gelu" | "silu":
                    last = b.emit(getattr(op.nn, step)(last))
                case _:
                    last = b.emit(getattr(op, step)(last))
        return last

    return function(given, body)


def dense(steps: str, dtype: str = "float16", *, bias: tuple[int, ...] = (16,)) -> Any:
    """A function of products with 16 by 16 weights."""
    weights = [tensor(f"w{n}", *((16, 16) if step in ("matmul", "linear") else bias), dtype=dtype)
               for n, step in enumerate(steps.split()) if step in ("matmul", "linear", "add", "multiply")]  # fmt: skip
    return chain(tensor("x", 8, 16, dtype=dtype), weights, steps)


def convs(steps: str, layout: str = "NCHW", dtype: str = "float16") -> Any:
    nchw = layout == "NCHW"
    shapes = {"conv": (8, 8, 3, 3) if nchw else (8, 3, 3, 8), "add": (1, 8, 1, 1) if nchw else (8,)}
    weights = [tensor(f"w{n}", *shapes[step], dtype=dtype) for n, step in enumerate(steps.split()) if step in shapes]
    x = tensor("x", *((2, 8, 12, 12) if nchw else (2, 12, 12, 8)), dtype=dtype)
    return chain(x, weights, steps, data_layout=layout, kernel_layout="OIHW" if nchw else "OHWI")


def volumes() -> Any:
    given = tensor("x", 1, 4, 6, 6, 6), tensor("w", 4, 4, 3, 3, 3)
    return function(given, lambda b, x, w: b.emit(op.nn.max_pool3d(b.emit(op.nn.conv3d(x, w)), (2, 2, 2), (2, 2, 2))))


def attention(*, bias: bool = False) -> Any:
    variables = [tensor(name, 2, 16, 4, 8, dtype="float16") for name in "qkv"]
    variables += [tensor("bias", 2, 4, 16, 16, dtype="float16")] * bias
    return function(variables, lambda b, *given: b.emit(op.nn.attention(*given)))


def stacked(split: bool) -> Any:
    """Attention whose operands are parts of one tensor."""

    def body(b: Any, x: Any) -> Any:
        if split:
            whole = b.emit(op.split(x, 3, axis=2))
            parts = [b.emit(whole[n]) for n in range(3)]
        else:
            parts = [b.emit(op.strided_slice(x, [2], [n * 32], [n * 32 + 32], [1])) for n in range(3)]
        q, k, v = [b.emit(op.reshape(part, (2, 16, 4, 8))) for part in parts]
        return b.emit(op.nn.attention(q, k, v))

    return function([tensor("x", 2, 16, 96, dtype="float16")], body)


def layer_norm() -> Any:
    given = [tensor("x", 2, 8, dtype="float16"), *[tensor(name, 8, dtype="float16") for name in "gb"]]
    return function(given, lambda b, *args: b.emit(op.nn.layer_norm(*args, axes=[-1])))


def decode(w: Any, s: Any) -> Any:
    return te.compute((16, 16), lambda i, j: w[i, j].astype("float16") * s[j])


def rms_norm(x: Any, w: Any) -> Any:
    return te.compute((16, 16), lambda i, j: x[i, j] * w[j])


def functions() -> Any:
    """A product with a weight that a function of the module decodes, and a norm of it by another one."""

    def body(b: Any, x: Any, w: Any, s: Any) -> Any:
        product = b.emit(op.matmul(x, b.emit_te(decode, w, s)))
        return b.emit_te(rms_norm, b.emit(op.add(product, s)), s)

    weights = [tensor("w", 16, 16, dtype="int8"), tensor("s", 16, dtype="float16")]
    return function([tensor("x", 16, 16, dtype="float16"), *weights], body)


GRAPHS: Final = {
    "matmul": dense("matmul"), "products": dense("matmul add relu matmul add gelu linear"),
    "linear": dense("linear add relu linear add gelu linear add"), "float32": dense("linear add relu", "float32"),
    "residual": dense("matmul add relu", bias=(8, 16)), "two residuals": dense("linear add add relu multiply"),
    "conv": convs("conv add relu conv"), "conv of channels last": convs("conv add silu conv add relu conv", "NHWC"),
    "conv in float32": convs("conv add relu max_pool2d conv relu avg_pool2d", dtype="float32"),
    "element-wise": dense("add multiply tanh exp sqrt abs negative relu softmax", "float32"),
    "conv in three dimensions": volumes(), "attention": attention(), "attention with bias": attention(bias=True),
    "stacked by split": stacked(True), "stacked by slices": stacked(False), "layer norm": layer_norm(),
    "functions of the module": functions(),
}  # fmt: skip
BACK_ENDS: Final = ("cublas", "cudnn", "cutlass", "hipblas", "coreml", "nnapi", "tensorrt", "example_npu")


@cache
def imported(back_end: str) -> list[tuple[FusionPattern, Any]]:
    """The patterns of a back end with their rules; ``None`` for those that are refused. Of those of residual blocks,
    which are long, there are a few."""
    found: list[tuple[FusionPattern, Any]] = []
    for number, pattern in enumerate(get_patterns_with_prefix(back_end)):
        if "_residual_" in pattern.name and not pattern.name.startswith("cutlass.matmul_transposed_bias_residual"):
            continue
        try:
            found.append((pattern, from_dpl(pattern, name=f"{pattern.name} {number}", priority=-number)))
        except ExchangeError:
            found.append((pattern, None))
    return found


def takes_apart(pattern: FusionPattern) -> bool:
    """True for a pattern that matches one half of a linear layer, which is one call in GSL."""
    text = str(pattern.pattern)
    return ("relax.matmul" in text) != ("relax.permute_dims" in text)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_makes_the_groups_of_tvm(back_end: str) -> None:
    """One pattern at a time, on all graphs; those that are refused are counted."""
    refused = Counter(str(pattern.name) for pattern, rule in imported(back_end) if rule is None)
    assert refused == REFUSED.get(back_end, {})
    found: Counter[str] = Counter()
    loaded = {name: Workload(module) for name, module in GRAPHS.items()}
    for pattern, rule in imported(back_end):
        for name, wl in loaded.items() if rule is not None else ():
            if "permute_dims" in str(wl.native) and takes_apart(pattern):
                continue
            wanted = groups_of(FuseOpsByPattern([pattern], bind_constants=True)(wl.native))
            assert groups_of(rule(wl).mod) == wanted, (name, pattern.name)
            found += wanted
    assert found


def test_other_groups_are_told_apart() -> None:
    """The oracle fails for a rule of another pattern, and for one that makes nothing."""
    wl = Workload(GRAPHS["residual"])
    wanted = groups_of(FuseOpsByPattern([FusionPattern("mine", ADD_RELU)])(wl.native))
    assert groups_of(from_dpl(FusionPattern("mine", ADD_RELU))(wl).mod) == wanted
    for other in (FusionPattern("other", ADD_RELU), FusionPattern("mine", TWICE)):
        assert groups_of(from_dpl(other)(wl).mod) != wanted


@pytest.mark.long
@pytest.mark.parametrize("name", ["products", "linear", "residual", "conv of channels last"])
def test_earlier_patterns_go_first(name: str) -> None:
    wl = Workload(GRAPHS[name])
    rules = RuleSet([rule for _, rule in imported("cutlass") if rule is not None])
    wanted = groups_of(FuseOpsByPattern([pattern for pattern, _ in imported("cutlass")])(wl.native))
    assert groups_of(rules(wl).mod) == wanted
    assert wanted


ADDED: Final = dense("add relu tanh", "float32")


def test_a_group_can_be_for_a_code_generator() -> None:
    wl = Workload(ADDED)
    new = from_dpl(FusionPattern("dnnl.add_relu", ADD_RELU), annotate_codegen=True)(wl)
    ((name, attrs),) = [(group.name, dict(group.attrs)) for group in new.groups().values()]
    assert (name, attrs) == ("dnnl.add_relu", {"codegen": "dnnl"})
    wl.compare(new).check()


def test_a_check_is_asked() -> None:
    seen: list[Any] = []

    def check(context: Any) -> bool:
        seen.append([int(size) for size in context.annotated_expr["x"].ty.shape.values])
        return False

    x = wildcard()
    pattern = is_op("relax.nn.relu")(is_op("relax.add")(x, wildcard()))
    rule = from_dpl([("mine.add_relu", pattern, {"x": x}, check)])
    wl = Workload(ADDED)
    assert rule(wl).trace.count() == 0
    assert seen
    assert all(shape == [8, 16] for shape in seen)


def test_values_used_elsewhere_are_no_part_of_a_group() -> None:
    def body(b: Any, x: Any) -> Any:
        added = b.emit(op.add(x, x))
        return b.emit(op.multiply(added, b.emit(op.nn.relu(added))))

    rule = from_dpl(FusionPattern("mine.add_relu", ADD_RELU))
    assert rule(Workload(function([tensor("x", 2, 3)], body))).trace.count() == 0


X: Final = wildcard()
TWICE: Final = is_op("relax.add")(X, X)


def test_a_rewriter_makes_calls() -> None:
    def doubled(expr: Any, found: Any) -> Any:
        return op.multiply(found[X], relax.const(2.0, "float32"))

    def body(b: Any, x: Any) -> Any:
        return b.emit(op.add(b.emit(op.add(x, x)), b.emit(op.exp(x))))

    wl = Workload(function([tensor("x", 2, 3)], body))
    new = from_dpl(TWICE, doubled)(wl)
    assert new.op_counts() == {"multiply": 1, "add": 1, "exp": 1}
    wl.compare(new).check()


@pytest.mark.parametrize(("rewriter", "reason"), [
    (lambda expr, found: None, "the rewriter returns None, and not an expression of Relax"),
    (lambda expr, found: expr, "leaves this as it is"), (lambda expr, found: found[3], "the rewriter raises KeyError"),
])  # fmt: skip
def test_a_rewriter_may_refuse(rewriter: Any, reason: str) -> None:
    wl = Workload(function([tensor("x", 2, 3)], lambda b, x: b.emit(op.add(x, x))))
    rule = from_dpl(TWICE, rewriter, name="twice")
    assert rule(wl).trace.count() == 0
    assert reason in str(rule.explain(wl))


@pytest.mark.parametrize("given", [(3,), ([3],), (ADD_RELU,), (ADD_RELU, 3), ([("name",)],), ([("name", 3)],)])
def test_what_is_no_pattern(given: tuple[Any, ...]) -> None:
    with pytest.raises(ExchangeError, match=r"expected .*patterns as FuseOpsByPattern takes them"):
        from_dpl(*given)


def test_of_a_list_what_is_refused_has_a_reason() -> None:
    rules = from_dpl([FusionPattern("mine.add_relu", ADD_RELU), FusionPattern("mine.all", wildcard()(X))])
    assert [rule.name for rule in rules] == ["mine.add_relu"]
    assert "is no operator" in rules.refused["mine.all"]
