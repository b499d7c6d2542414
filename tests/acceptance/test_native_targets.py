"""Functions and modules of torch that are no operators of the vocabulary, matched and built by themselves."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError, PatternError
from tests.acceptance.harness import net, workload

FORMS = pytest.mark.parametrize("form", ["exported", "decomposed", "traced", "untyped", "compiled"])
x, y = pat.Wildcard(), pat.Wildcard()
aten = torch.ops.aten
MATRIX, IMAGE = torch.rand(3, 4), torch.randn(1, 8, 3, 3)

FUNCTIONS: dict[str, tuple[Any, dict[str, Any], torch.Tensor]] = {
    "special": (torch.special.erfcx, {}, MATRIX),
    "function": (torch.erfinv, {}, MATRIX),
    "method": (torch.Tensor.erfinv, {}, MATRIX),
    "overload": (aten.erfinv.default, {}, MATRIX),
    "positional": (torch.cumprod, {"dim": 1}, MATRIX),
    "several": (torch.renorm, {"p": 2, "dim": 0, "maxnorm": 1.0}, MATRIX),
    "functional": (F.pdist, {"p": 1.0}, MATRIX),
    "linalg": (torch.linalg.matrix_exp, {}, torch.rand(3, 3)),
}
CALLS: dict[str, Any] = {
    "special": lambda net, a: torch.special.erfcx(a), "function": lambda net, a: torch.erfinv(a),
    "method": lambda net, a: a.erfinv(), "overload": lambda net, a: torch.erfinv(a),
    "positional": lambda net, a: torch.cumprod(a, 1), "several": lambda net, a: torch.renorm(a, 2, 0, 1.0),
    "functional": lambda net, a: F.pdist(a, 1.0), "linalg": lambda net, a: torch.linalg.matrix_exp(a),
}  # fmt: skip


@pytest.mark.sweep(3)
@FORMS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_source(name: str, form: str) -> None:
    """A function is found under any of its names: torch.f, x.f(), aten.f.default."""
    function, attrs, value = FUNCTIONS[name]
    wl = workload(net(CALLS[name]), (value,), form)
    call = pat.Call(function, x, **attrs)
    if form == "decomposed" and name in ("functional", "linalg", "several"):
        # A decomposition may leave no such call.
        assert sum(1 for _ in Subst(call, call + 0.0).match(wl)) <= 1
        return
    assert sum(1 for _ in Subst(call, call + 0.0).match(wl)) == 1
    assert not list(Subst(pat.Call(torch.special.ndtri, x), x).match(wl))
    if attrs:
        other = dict.fromkeys(attrs, 3)
        assert not list(Subst(pat.Call(function, x, **other), -x).match(wl))
    assert sum(1 for _ in Subst(pat.Call(pat.OneOf(function, "nn.relu"), x), x).match(wl)) == 1
    assert not list(Subst(pat.Call(pat.NoneOf(function), x), x).match(wl))


@pytest.mark.sweep(3)
@FORMS
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_as_target(name: str, form: str) -> None:
    """It is written as the graph has it: in an exported program as an overload of aten."""
    function, attrs, value = FUNCTIONS[name]
    wl = workload(net(lambda net, a: torch.sigmoid(a)), (value,), form)
    rule = Subst(op.Sigmoid(x), pat.Call(function, x, **attrs))
    if name == "functional" and form != "untyped":
        # Another shape is refused.
        assert rule(wl).trace.count() == 0
        return
    new = rule(wl)
    assert new.trace.count() == 1
    with torch.no_grad():
        expected = CALLS[name](None, value)
        found = new(value)
        torch.testing.assert_close(found[0] if isinstance(found, (list, tuple)) else found, expected)
    assert sum(1 for _ in Subst(pat.Call(function, x, **attrs), x).match(new)) == 1
    if form == "exported":
        assert type(new.exported).__name__ == "ExportedProgram"


@pytest.mark.parametrize("form", ["traced", "untyped"])
@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_modules(form: str) -> None:
    """A module is an operator by its class, with the arguments of its constructor as attributes."""
    wl = workload(net(lambda net, a: net.act(a), act=nn.CELU(2)), (IMAGE,), form)
    act = pat.Call(nn.CELU, x, alpha=2)
    assert sum(1 for _ in Subst(act, x).match(wl)) == 1
    assert not list(Subst(pat.Call(nn.CELU, x, alpha=3), x).match(wl))
    new = Subst(act, pat.Call(F.celu, x, alpha=2))(wl)
    wl.compare(new, (IMAGE,)).check()
    back = Subst(pat.Call(F.celu, x, alpha=2), act)(new)
    assert back.trace.count() == 1
    assert any(isinstance(module, nn.CELU) for module in back.mod.modules())
    wl.compare(back, (IMAGE,)).check()


@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_module_with_weights() -> None:
    """A new module with weights must be given itself."""
    wl = workload(net(lambda net, a: torch.sigmoid(a)), (MATRIX,), "traced")
    with pytest.raises(FrontEndError, match="weights that nobody set; give the module itself as the attribute module="):
        Subst(op.Sigmoid(x), pat.Call(nn.PReLU, x))(wl)
    module = nn.PReLU(init=0.5).eval()
    new = Subst(op.Sigmoid(x), pat.Call(nn.PReLU, x, module=module))(wl)
    assert new.op_counts() == {"nn.prelu": 1}
    with torch.no_grad():
        torch.testing.assert_close(new(-MATRIX), module(-MATRIX))


def test_what_an_exported_program_can_not_hold() -> None:
    wl = workload(net(lambda net, a: torch.sigmoid(a)), (IMAGE,), "exported")
    for target, reason in {
        nn.Hardshrink: r"can't call the module .*Hardshrink; rewrite the GraphModule",
        F.gumbel_softmax: r"aten operators, and torch\.nn\.functional\.gumbel_softmax is none .*; build it",
    }.items():
        new = Subst(op.Sigmoid(x), pat.Call(target, x))(wl)
        (refused,) = new.trace.refused
        assert re.search(reason, str(refused))
        assert new.text() == wl.text()


@FORMS
@pytest.mark.parametrize(("function", "attrs"), [
    (aten.relu_.default, {}), (torch.relu_, {}), (torch.Tensor.relu_, {}), (F.silu, {"inplace": True}),
])  # fmt: skip
def test_a_call_that_writes_to_its_operands_is_not_made(function: Any, attrs: dict[str, Any], form: str) -> None:
    """The product is read once more behind it."""

    def forward(net: Any, a: torch.Tensor) -> Any:
        product = a * -2.0
        return torch.sigmoid(product), product + 1.0

    wl = workload(net(forward), (MATRIX,), form)
    new = Subst(op.Sigmoid(x), pat.Call(function, x, **attrs))(wl)
    assert not new.trace.firings
    assert "can't be written" in new.trace.refused[0].reason
    assert new.text() == wl.text()


@pytest.mark.sweep(3)
@FORMS
@pytest.mark.parametrize(("call", "named"), [
    (lambda: pat.Call(torch.relu, x), r"op\.ReLU\(x\)"),
    (lambda: pat.Call(F.relu, x), r"op\.ReLU\(x\)"),
    (lambda: pat.Call(torch.Tensor.relu, x), r"op\.ReLU\(x\)"),
    (lambda: pat.Call(aten.relu.default, x), r"op\.ReLU\(x\)"),
    (lambda: pat.Call(nn.ReLU, x), r"op\.ReLU\(x\)"),
    (lambda: pat.Call(torch.sum, x, dim=1), r"op\.Sum\(x, axis=\(1,\)"),
    (lambda: pat.Call(F.linear, x, y), r"op\.Dense\(x, y\)"),
    (lambda: pat.Call(nn.Linear, x), r"op\.BiasAdd\(op\.Dense\(x, pat\.Param\(\)\)"),
    (lambda: pat.Call(nn.Conv2d, x), r"op\.BiasAdd\(op\.Conv2D\(x, pat\.Param\(\)"),
    (lambda: pat.Call(torch.cat, [x, y]), r"op\.Concatenate\(\["),
    (lambda: pat.Call(F.pixel_shuffle, x, upscale_factor=2), r"op\.Reshape\(op\.Transpose\(op\.Reshape\(x"),
])  # fmt: skip
def test_a_canonical_operator_is_named(call: Any, named: str, form: str) -> None:
    """A function that graphs show by a canonical operator does not silently match nothing."""
    rule = Subst(call(), x)
    wl = workload(net(lambda net, a: torch.relu(a)), (MATRIX,), form)
    for meet in (rule, rule.explain, lambda wl: list(rule.match(wl))):
        with pytest.raises(PatternError, match=rf"test_native_targets.py:\d+: .* matches nothing: .*write {named}"):
            meet(wl)


@pytest.mark.parametrize(("target", "attrs", "shown"), [
    (aten.native_layer_norm, {}, "nn.layer_norm"),
    (aten.mean.dim, {}, "mean"),
    (aten._softmax.default, {"dim": 1}, "nn.softmax"),
])  # fmt: skip
def test_a_call_that_the_graph_shows_by_a_canonical_operator_is_hinted_at(target: Any, attrs: Any, shown: str) -> None:
    """Where that operator depends on attributes that the pattern leaves out, or on a field of the result."""
    wl = workload(net(lambda net, a: F.layer_norm(a, (4,)).softmax(1).mean(1)), (MATRIX,), "decomposed")
    hint = Subst(pat.Call(target, x, **attrs), x).explain(wl).hint
    assert re.fullmatch(rf"%\w+ is a call of aten\.\w+\.\w+, which the graph shows as one of {re.escape(shown)}", hint)
    assert "hint" not in str(Subst(pat.Call(aten.kthvalue.default, x), x).explain(wl))


def test_a_function_that_is_read_for_some_arguments_only() -> None:
    """What the vocabulary does not cover is matched by itself."""
    wl = workload(net(lambda net, a: torch.var(a, 1, correction=3)), (MATRIX,), "traced")
    assert sum(1 for _ in Subst(pat.Call(torch.var, x), x).match(wl)) == 1
    assert sum(1 for _ in Subst(pat.Call(torch.var, x, correction=3), x).match(wl)) == 1
    plain = workload(net(lambda net, a: torch.var(a, 1)), (MATRIX,), "traced")
    assert not list(Subst(pat.Call(torch.var, x, correction=3), x).match(plain))


def test_arguments_named_like_types() -> None:
    """A function's own dtype= is an argument like any other: matched, read and written."""
    wl = workload(net(lambda net, a: torch.nansum(a, dim=[0], dtype=torch.float64)), (MATRIX,), "exported")
    total = pat.Call(aten.nansum.default, x, dim=[0], dtype=torch.float64)
    assert sum(1 for _ in Subst(total, x).match(wl)) == 1
    assert not list(Subst(pat.Call(aten.nansum.default, x, dtype=torch.float32), x).match(wl))
    kept = pat.Call(aten.nansum.default, x, dim=[0], keepdim=True, dtype=total.dtype)
    new = Subst(total, op.Reshape(kept, newshape=x.shape[1:]))(wl)
    assert new.trace.count() == 1
    cancelling = torch.tensor([[1e8], [1.0], [-1e8]]).expand(3, 4)  # the sum is 0 in single precision
    wl.compare(new, (cancelling,), rtol=1e-12).check()


def test_pairs_of_quantize_and_dequantize() -> None:
    """The two calls that every quantiser of torch writes are matched, and built."""
    import torch.ao.quantization.fx._decomposed  # defines them

    quantized = torch.ops.quantized_decomposed
    scheme = {"scale": 0.1, "zero_point": 3, "quant_min": -128, "quant_max": 127, "dtype": torch.int8}

    def fake(net: Any, a: torch.Tensor) -> torch.Tensor:
        q = quantized.quantize_per_tensor(a, 0.1, 3, -128, 127, torch.int8)
        return quantized.dequantize_per_tensor(q, 0.1, 3, -128, 127, torch.int8).relu()  # type: ignore[no-any-return]

    wl = workload(net(fake), (MATRIX,), "exported")
    q = pat.Call(quantized.quantize_per_tensor.default, x, **scheme)
    same = {name: getattr(q, name) for name in scheme}
    pair = pat.Call(quantized.dequantize_per_tensor.default, q, **same)
    removed = Subst(pair, x)
    assert removed(wl).op_counts() == {"nn.relu": 1}
    assert not list(Subst(pat.Call(quantized.quantize_per_tensor.default, x, dtype=torch.uint8), x).match(wl))

    plain = workload(net(lambda net, a: torch.relu(a)), (MATRIX,), "exported")
    q = pat.Call(quantized.quantize_per_tensor.default, x, **scheme)
    built = Subst(op.ReLU(x), op.ReLU(pat.Call(quantized.dequantize_per_tensor.default, q, **scheme)))(plain)
    torch.testing.assert_close(built(MATRIX), fake(None, MATRIX), rtol=0, atol=0)
    assert removed(built).op_counts() == {"nn.relu": 1}


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_a_reshape_of_what_has_no_type(kept: int) -> None:
    """The axes that are kept stand first, so it is a flatten of the others; of any other it is not known."""
    value = torch.randn(2, 3, 4, 5)
    wl = workload(net(lambda net, a: torch.sigmoid(a)), (value,), "untyped")
    flat = Subst(op.Sigmoid(x), op.Reshape(x, newshape=(0,) * kept + (-1,)))(wl)
    found = flat(value)
    torch.testing.assert_close(found[0] if isinstance(found, (list, tuple)) else found, value.flatten(kept))
    other = Subst(op.Sigmoid(x), op.Reshape(x, newshape=(0, -1, 0)))(wl)
    assert "the shape (0, -1, 0) of an operand of unknown type" in str(other.trace.refused[0])
    assert other.text() == wl.text()


def test_functions_of_others() -> None:
    """A function of the user's own, as a leaf of the trace."""
    wl = Workload.from_fx(traced_with(own), (MATRIX,))
    rule = Subst(pat.Call(own, x), op.Tanh(x))
    assert rule(wl).trace.count() == 0, "its effects are not known, so it stays"
    assert "effect" in str(rule.explain(wl))


def own(a: torch.Tensor) -> torch.Tensor:
    return torch.tanh(a)


def traced_with(function: Any) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    graph.output(graph.call_function(function, (a,)))
    return torch.fx.GraphModule(nn.Module(), graph)
