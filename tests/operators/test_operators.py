"""Operators of users in torch: patterns, calls on tensors, reading and writing, rules of the meaning."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import gsl
import gsl.fx
from gsl import Refuted, RuleSet, Subst, Supported, Workload, op, pat
from gsl.errors import PatternError, UnknownAttributeError, WorkloadError
from gsl.operators.declare import UserOperator, library_operator
from gsl.rules import NORMAL
from gsl.verify.judge import verify
from tests.helpers.nets import NetOfOne
from tests.operators.declared import blend, gated, rms_norm, scaled


class Written(nn.Module):
    """A normalisation as it is written out, with another epsilon than the default."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Called(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(rms_norm(x, self.weight), self.weight, eps=1e-5)


X = torch.linspace(-2, 3, 24).reshape(3, 8)


def exported(model: nn.Module) -> Workload:
    return Workload.from_torch(model, (X,))


TEXT = """\
%weight: float32[8] = param
%x: float32[3, 8] = input
%relu: float32[3, 8] = nn.relu(%x)
%rms_norm: float32[3, 8] = gsl_tests::rms_norm(%relu, %weight, eps=1e-05)
return %rms_norm"""


def test_a_class_for_patterns() -> None:
    x, w = pat.Wildcard(), pat.Wildcard()
    call = rms_norm(x, w, eps=1e-5)
    assert "gsl_tests::rms_norm" in str(call)
    assert call.readable() == {"eps", "shape", "dtype", "ndim"}
    assert rms_norm.__doc__ == "The root mean square normalisation of the last axis."
    with pytest.raises(gsl.errors.PatternError, match=r"takes 2 operands \(x, weight\), got 1"):
        rms_norm(x)
    with pytest.raises(UnknownAttributeError, match="did you mean 'eps'"):
        rms_norm(x, w, epsilon=1e-5)
    with pytest.raises(gsl.errors.PatternError, match="expected a number, found 'small'"):
        rms_norm(x, w, eps="small")
    assert gated(x).operands == (x,)
    assert is_field(scaled(x)[1])


def is_field(pattern: Any) -> bool:
    return isinstance(pattern, pat.GetItem)


def test_a_declaration_computes_the_meaning_once() -> None:
    seen: list[tuple[int, ...]] = []

    @gsl.operator("gsl_tests::computed_once")
    def computed_once(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return torch.relu(x)

    assert len(seen) == 1


def test_on_tensors_it_is_the_operator_itself() -> None:
    w = torch.ones(8)
    expected = X * torch.rsqrt(X.pow(2).mean(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(rms_norm(X, w), expected)
    torch.testing.assert_close(torch.ops.gsl_tests.rms_norm(X, w), expected)
    assert rms_norm.torch_op is torch.ops.gsl_tests.rms_norm.default
    torch.testing.assert_close(gated(X, mode="sigmoid"), torch.sigmoid(X) * X)
    with pytest.raises(TypeError, match="takes 2 tensors"):
        rms_norm(X)
    with pytest.raises(TypeError, match="no attribute 'epsilon': did you mean 'eps'"):
        rms_norm(X, w, epsilon=1.0)


def test_recognise_and_lower() -> None:
    wl = exported(Written())
    recognise, lower = rms_norm.recognise(), rms_norm.lower()
    new = recognise(wl)
    assert new.text() == TEXT
    wl.compare(new).check()
    assert "torch.ops.gsl_tests.rms_norm.default(relu, weight, eps = 1e-05)" in new.mod.code
    back = lower(new)
    assert back.trace.count("lower rms_norm") == 1
    assert [node.op for node in back.graph] == [node.op for node in wl.graph]
    wl.compare(back).check()
    assert recognise(new).trace.count("recognise rms_norm") == 0


def test_it_is_a_program_of_a_rule() -> None:
    def otherwise(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)

    class Otherwise(Written):
        def forward(self, x: Tensor) -> Tensor:
            return otherwise(torch.relu(x), self.weight, eps=1e-5)

    rule = Subst.from_programs(otherwise, rms_norm, x="*b d", weight="d")
    assert str(rule(exported(Otherwise()))) == TEXT
    assert op.Add.__name__ == "Add"


def test_the_rules_are_like_any_other() -> None:
    recognise = rms_norm.recognise()
    assert "gsl_tests::rms_norm(x0, x3, eps=x2.value)" in str(recognise)
    text = recognise.to_python()
    assert "target = rms_norm(x, weight, eps=eps.value)" in text
    assert text.startswith("from tests.operators.declared import rms_norm\n")
    space: dict[str, Any] = {}
    exec(f"from gsl import *\n{text}", space)
    assert str(space["rule"]).partition("\n")[2] == str(recognise).partition("\n")[2]
    assert "no call of" in str(recognise.explain(exported(Called())))
    assert "gsl_tests::rms_norm" in recognise.visualize().source


@pytest.mark.parametrize(
    "rule",
    [rms_norm.recognise(), blend.lower(), scaled.lower(axis=-1)],
    ids=lambda rule: rule.name,
)
def test_both_verify(rule: Subst) -> None:
    assert isinstance(rule.verify(max_examples=20), Supported)


def test_a_class_of_such_operators_verifies() -> None:
    @gsl.operator("gsl_tests::doubled")
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    @gsl.operator("gsl_tests::doubled_too")
    def doubled_too(x: Tensor) -> Tensor:
        return x + x

    x, either = pat.Wildcard(), pat.OneOf(doubled, doubled_too, op.Tanh, joint=False)
    for members, verdict in ((pat.OneOf(doubled, doubled_too), Supported), (either, Refuted)):
        assert isinstance(verify(Subst(pat.Call(members, x), x + x), max_examples=20, suggest=False), verdict)


def test_a_wrong_rule_with_the_operator_is_refuted() -> None:
    x, w = pat.Wildcard(), pat.Wildcard()
    wrong = Subst(rms_norm(x, w, eps=0.5), rms_norm(x, w, eps=0.25))
    verdict = verify(wrong, max_examples=20, suggest=False)
    assert isinstance(verdict, Refuted)
    assert "torch.rsqrt" in verdict.counterexample.code


def test_a_factor_of_which_nothing_is_said_may_be_negative() -> None:
    @gsl.operator("gsl_tests::times")
    def times(x: Tensor, *, by: float = 2.0) -> Tensor:
        return x * by

    x = pat.Wildcard(dtype="float32")
    product = times(x)
    wrong = Subst(op.ReLU(product), product.like(op.ReLU(x)))
    assert isinstance(verify(wrong, suggest=False), Refuted)
    right = Subst(op.ReLU(product), product.like(op.ReLU(x)), where=product.by > 0)
    assert isinstance(verify(right, max_examples=20), Supported)


def test_a_rule_brings_the_operators_that_it_names() -> None:
    wl = exported(Called())
    assert "gsl_tests::rms_norm" not in wl.text()  # an opaque call
    x, w = pat.Wildcard(), pat.Wildcard()
    once = Subst(rms_norm(rms_norm(x, w), w, eps=1e-5), op.ReLU(rms_norm(x, w)), name="once")
    assert len(list(once.match(wl))) == 1
    new = once(wl)
    assert "gsl_tests::rms_norm(%x, %weight)\n" in new.text()
    assert len(list(RuleSet([once]).match(wl))) == 1
    assert "1 match" in str(once.explain(wl))
    assert "gsl_tests::rms_norm" not in wl.text()
    both = wl.with_operators(rms_norm)
    assert both.text().count("gsl_tests::rms_norm") == 2
    assert both.with_operators(rms_norm) is both
    model = Called()
    assert Workload.from_torch(model, (X,), operators=[rms_norm]).text().count("gsl_tests::rms_norm") == 2
    with pytest.raises(WorkloadError, match=r"takes operators that @gsl\.operator declared"):
        wl.with_operators(op.ReLU)


def test_untouched_calls_come_back_as_they_were() -> None:
    wl = exported(Called()).with_operators(rms_norm)
    x = pat.Wildcard()
    twice = Subst(rms_norm(x, pat.Param(), eps=1e-5), op.ReLU(x))
    new = twice(wl)
    assert "torch.ops.gsl_tests.rms_norm.default(x, weight)" in new.mod.code
    assert new.text().count("gsl_tests::rms_norm") == 1


def test_types_follow_from_the_meaning() -> None:
    view = exported(Called()).with_operators(rms_norm).graph
    types = [str(node.type) for node in view if node.op == "gsl_tests::rms_norm"]
    assert types == ["float32[3, 8]"] * 2
    x, w = pat.Wildcard(), pat.Wildcard()
    wrong = Subst(rms_norm(x, w, eps=1e-5), rms_norm(x, pat.Const(torch.ones(5))))
    new = wrong(exported(Called()))
    assert "is not well-formed" in str(new.trace.refused[0])


def test_weights_are_folded_by_the_meaning() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(X.clone())
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return x + torch.relu(rms_norm(self.table, self.weight))

    wl = exported(Folded()).with_operators(rms_norm)
    folded = wl.fold(params=True)
    assert "rms_norm" not in folded.text().replace("%rms_norm", "")
    wl.compare(folded).check()


def test_results_and_options() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scale = x.abs().amax(-1, keepdim=True)
            return (x / (scale + 1.0)) * scale

    wl = exported(Scaled())
    new = scaled.recognise(axis=-1)(wl)
    assert "%getitem_1: float32[3, 1] = %scaled[1]" in new.text() or "[1]" in new.text()
    assert "gsl_tests::scaled(%x)" in new.text()
    wl.compare(new).check()
    assert "gsl_tests::gated(x0, x1, mode='sigmoid')" in str(gated.recognise(mode="sigmoid"))
    assert isinstance(gated.lower(mode="relu", bias=None).verify(max_examples=20), Supported)
    with pytest.raises(gsl.errors.PatternError, match=r"can't be a rule|computes other calls"):
        gated.recognise()
    with pytest.raises(gsl.errors.PatternError, match="is no parameter"):
        gated.recognise(kind="relu")
    with pytest.raises(gsl.errors.PatternError, match="only an optional tensor can be fixed"):
        gated.recognise(x=None)


def test_traits() -> None:
    x = pat.Wildcard()
    rule = Subst(blend(op.ReLU(x), x), op.ReLU(x), name="turned")

    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return blend(x, torch.relu(x))

    assert len(list(rule.match(exported(Turned())))) == 1
    with pytest.raises(gsl.errors.PatternError, match="unknown trait 'comutative': did you mean 'commutative'"):
        gsl.operator("gsl_tests::other", traits="comutative")


def test_targets_by_which_graphs_call_it() -> None:
    class Packet(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.gsl_tests.rms_norm(x, x)

    x = pat.Wildcard()
    rule = Subst(rms_norm(x, x), op.ReLU(x))
    _ = rms_norm.torch_op
    for traced in (fx.symbolic_trace(Packet()), torch.export.export(Packet(), (X,)).module()):
        new = rule(Workload.from_fx(traced, (X,)))
        assert len(new.trace.firings) == 1, new.text()


def test_in_other_operators_rules() -> None:
    """A rule of two functions that call the operator."""

    def before(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(rms_norm(x, w, eps=1e-5))

    def after(x: Tensor, w: Tensor) -> Tensor:
        return rms_norm(torch.relu(x), w)

    rule = Subst.from_programs(before, after)
    assert "gsl_tests::rms_norm" in str(rule)
    assert [spec.cls for spec in rule.operators] == ["rms_norm"]


def test_back_ends() -> None:
    model, rule = Written(), rms_norm.recognise()
    backend = gsl.torch_backend([rule], then="eager")
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(X), model(X))
    assert [trace.count(rule.name) for trace in backend.traces] == [1]
    traced = torch.export.export(model, (X,)).module()
    gsl.fx.Pass(rule)(traced)
    assert any(node.target is rms_norm.torch_op for node in traced.graph.nodes)


def test_rules_can_be_pickled_and_copied() -> None:
    rule = rms_norm.recognise(name="recognise")
    again = pickle.loads(pickle.dumps(rule))
    assert again.operators == rule.operators
    assert again(exported(Written())).text() == TEXT
    assert pickle.loads(pickle.dumps(rms_norm)) is rms_norm
    new = rule(exported(Written()))
    for copied in (pickle.loads(pickle.dumps(new)), copy.deepcopy(new)):
        assert copied.text() == TEXT
        assert copied.program.operators == new.program.operators
    name = rms_norm.spec.name
    assert copy.deepcopy({"op": name})["op"] is name

    @gsl.operator("gsl_tests::local")
    def local(x: Tensor) -> Tensor:
        return x + 1.0

    with pytest.raises(gsl.errors.PicklingError, match="declare it at the top of a module"):
        pickle.dumps(local.recognise())


def test_two_declarations_of_one_name_are_two_operators() -> None:
    @gsl.operator("gsl_tests::again")
    def first(x: Tensor) -> Tensor:
        return x + 1.0

    rule = first.recognise()

    @gsl.operator("gsl_tests::again")
    def second(x: Tensor) -> Tensor:
        return x + 2.0

    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x + 1.0) + 2.0

    wl = exported(Adds())
    assert first.spec.name != second.spec.name
    assert first.spec.name == second.spec.name.encode().decode() == "gsl_tests::again"
    new = rule(wl)  # torch has the second one under this name
    assert "was declared again since" in str(new.trace.refused[0])
    new = second.recognise()(wl)
    assert new.trace.count("recognise second") == 1
    wl.compare(new).check()


def test_with_the_rule_book() -> None:
    wl = exported(Written())
    new = RuleSet([*NORMAL, rms_norm.recognise(priority=-1)])(wl, iterative=True)
    wl.compare(new).check()
    for other in wl, Workload.from_exported(wl.exported.run_decompositions()):
        new = (NORMAL + RuleSet([rms_norm.recognise(beside=NORMAL)]))(other, iterative=True)
        assert new.trace.count("recognise rms_norm") == 1
        wl.compare(new).check()


def test_gradients_are_those_of_the_meaning() -> None:
    x, w = X.clone().requires_grad_(), torch.linspace(0.5, 1.5, 8, requires_grad=True)
    rms_norm(x, w, eps=1e-3).square().sum().backward()
    y, v = X.clone().requires_grad_(), w.detach().clone().requires_grad_()
    rms_norm.meaning.function(y, v, eps=1e-3).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(w.grad, v.grad)
    only, _ = scaled(X[None].clone().requires_grad_())
    only.sum().backward()


def test_it_may_be_called_in_compiled_models() -> None:
    _ = rms_norm.torch_op
    rule = rms_norm.lower()
    backend = gsl.torch_backend([rule], then="eager")
    with torch.no_grad():
        found = torch.compile(Called(), backend=backend, fullgraph=True)(X)
        torch.testing.assert_close(found, Called()(X))
    assert [trace.count(rule.name) for trace in backend.traces] == [2]


def test_a_native_pattern_beside_the_operator_is_told() -> None:
    x, w = pat.Wildcard(), pat.Wildcard()
    native = Subst(pat.Call(rms_norm.torch_op, x, w), op.ReLU(x), name="native")
    wl = exported(Called())
    assert len(list(native.match(wl))) == 2
    with pytest.raises(gsl.errors.PatternError, match=r"declared for it; write rms_norm\(…\)"):
        native(wl.with_operators(rms_norm))


def test_an_operator_that_may_stand_between_others() -> None:
    """The workload reads its calls as those of the declared operator, which no pattern names."""
    x = pat.Wildcard()
    wl = exported(NetOfOne(lambda self, x: torch.exp(rms_norm(torch.relu(x), torch.ones(8)))))
    between = Subst(op.ReLU(x) > pat.is_op("exp"), x, fuzzy=[rms_norm])
    assert len(list(between.match(wl))) == 1
    assert not list(Subst(op.ReLU(x) > pat.is_op("exp"), x).match(wl))


def test_a_declared_operator_that_no_module_has_is_not_imported() -> None:
    @library_operator("gsl_tests::halved")
    def halved(x: Tensor) -> Tensor:
        return x * 0.5

    x = pat.Wildcard()
    assert Subst(op.ReLU(x), halved(x)).to_python().startswith("x = pat.Wildcard()\n")
    assert Subst(op.ReLU(x), gated(x)).to_python().startswith("from tests.operators.declared import gated\n")


def test_results_have_memory_of_their_own() -> None:
    @gsl.operator("gsl_tests::twice")
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    first, second = twice(X)
    first.add_(1.0)
    torch.testing.assert_close(second, X)
    assert second is not X


def test_a_call_that_gives_no_view_is_replaced_where_its_operand_is_written_later() -> None:
    """As the update of a cache, of which the next run gets the result; a view is not."""

    @gsl.operator("gsl_tests::updated", cache="m d", new="n d", places="int64[n]")
    def updated(cache: Tensor, new: Tensor, places: Tensor) -> Tensor:
        return cache.index_copy(0, places, new)

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(6, 8))

        def forward(self, new: Tensor) -> tuple[Tensor, Tensor]:
            full = self.cache.index_copy(0, torch.arange(3), new)
            before = self.cache.detach()
            self.cache.copy_(full)
            return full.exp(), before * 2.0

    wl = exported(Cached())
    new = updated.recognise(name="updated")(wl)
    assert new.trace.count("updated") == 1
    wl.compare(new).check()
    data = pat.Wildcard()
    copied = Subst(pat.Call(torch.ops.aten.detach.default, data), data * 1.0)
    assert "so it matters whether %detach shares its memory" in str(copied.explain(wl))


def test_dynamic_sizes() -> None:
    sizes = {"x": {0: torch.export.Dim("n", min=2, max=64)}}
    wl = Workload.from_torch(Written(), (X,), dynamic_shapes=sizes)
    new = rms_norm.recognise()(wl)
    assert "%rms_norm: float32[s" in new.text()
    wl.compare(new).check()
    back = rms_norm.lower()(new)
    assert [node.op for node in back.graph] == [node.op for node in wl.graph]


@pytest.mark.parametrize("module", ["ort", "quantised"])
def test_the_operators_of_the_library_are_what_they_say(module: str) -> None:
    """They are not checked when they are imported."""
    own = [each for each in vars(importlib.import_module(f"gsl.operators.{module}")).values()
           if isinstance(each, UserOperator)]  # fmt: skip
    assert len(own) > 8
    for each in own:
        each.check()


def test_that_check_can_fail() -> None:
    def branches(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    declared = library_operator("gsl_tests::branches")(branches)
    with pytest.raises(PatternError, match="branches"):
        declared.check()


def test_an_operand_that_is_left_out_before_another() -> None:
    @gsl.operator("gsl_tests::affine")
    def affine(x: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        y = torch.relu(x if shift is None else x + shift)
        return y if scale is None else y * scale

    torch.testing.assert_close(affine(X, None, X), torch.relu(X) * X)
    torch.testing.assert_close(affine(X, X, None), torch.relu(X + X))
    compiled = torch.compile(lambda x: affine(x, None, x), backend="eager")
    torch.testing.assert_close(compiled(X), torch.relu(X) * X)
    for make in (affine.recognise, affine.lower):
        assert make(scale=None)
        assert make(shift=None, scale=None)
        with pytest.raises(gsl.errors.PatternError, match="affine: shift is left out before scale, which no pattern"):
            make(shift=None)
    with pytest.raises(gsl.errors.PatternError, match="shift is left out before scale"):
        Subst.from_programs(lambda x, y: torch.relu(x) * y, lambda x, y: affine(x, None, y), x="a b", y="a b")
    with pytest.raises(gsl.errors.PatternError, match="affine: x is None, and not optional"):
        affine(None, X)


def test_copies_of_an_operator_are_the_operator() -> None:
    @gsl.operator("gsl_tests::doubled")
    def doubled(x: Tensor) -> Tensor:
        return x * 2.0

    class Holds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = doubled

        def forward(self, x: Tensor) -> Tensor:
            return self.kernel(x)

    assert copy.copy(doubled) is doubled
    assert copy.deepcopy(Holds()).kernel is doubled
