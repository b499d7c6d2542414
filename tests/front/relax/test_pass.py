"""Rules as passes of TVM."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax.expr import _update_type

import gsl.relax
from gsl import Match, RuleSet, Subst, op, pat
from gsl.errors import FixpointError, FrontEndError, PatternTypeError, RewriteError
from tests.front.relax.relax_helpers import Mixed, lines, tensor

X, Y = pat.Wildcard(), pat.Wildcard()
RELU_TWICE = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relu twice")


def module(**attrs: str) -> tvm.IRModule:
    """Two functions that compute a relu twice; the second has the attributes."""
    builder = relax.BlockBuilder()
    for name, given in (("main", {}), ("other", attrs)):
        x = tensor("x", 2)
        with builder.function(name, [x], attrs=given):
            with builder.dataflow():
                y = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.nn.relu(x))))
            builder.emit_func_output(y)
    return builder.get()


def counts(mod: tvm.IRModule) -> dict[str, int]:
    return {name: len(lines(mod, name)) for name in ("main", "other")}


def test_a_pass_rewrites_all_functions() -> None:
    own = gsl.relax.Pass([RELU_TWICE], name="relus")
    assert isinstance(own, tvm.transform.Pass)
    assert own.info.name == "relus"
    assert counts(own(module())) == {"main": 1, "other": 1}


def test_a_pass_stands_in_a_pipeline() -> None:
    pipeline = tvm.transform.Sequential([
        relax.transform.Normalize(), gsl.relax.Pass(RuleSet([RELU_TWICE])), relax.transform.LegalizeOps(),
    ])  # fmt: skip
    with tvm.transform.PassContext(opt_level=3):
        new = pipeline(module())
    assert counts(new) == {"main": 1, "other": 1}
    relax.analysis.well_formed(new)
    assert tvm.compile(new, target="llvm")


@pytest.mark.parametrize("mark", ["Composite", "Codegen", "Primitive"])
def test_functions_of_back_ends_are_left_alone(mark: str) -> None:
    before = module(**{mark: "dnnl"})
    after = gsl.relax.Pass(RELU_TWICE)(before)
    assert counts(after) == {"main": 1, "other": 2}
    assert after["other"].same_as(before["other"])


def test_functions_are_chosen_by_name() -> None:
    assert counts(gsl.relax.Pass(RELU_TWICE, functions="other")(module(Composite="mine"))) == {"main": 2, "other": 1}
    with pytest.raises(FrontEndError, match="no Relax function 'mian': did you mean 'main'"):
        gsl.relax.Pass(RELU_TWICE, functions=["mian"])(module())
    with pytest.raises(PatternTypeError, match=r"functions= of Pass is str | Iterable\[str\] | None, got I.GlobalVar"):
        gsl.relax.Pass(RELU_TWICE, functions=module().get_global_var("main"))
    with pytest.raises(PatternTypeError, match="Pass has no argument 'iteratve': did you mean 'iterative'"):
        gsl.relax.Pass(RELU_TWICE, iteratve=True)  # type: ignore[call-arg]


def test_a_module_in_which_nothing_fires_is_returned() -> None:
    assert gsl.relax.Pass(RELU_TWICE)(Mixed).same_as(Mixed)
    assert gsl.relax.Pass([])(Mixed).same_as(Mixed)


def test_errors_name_the_pass_the_function_and_the_rule() -> None:
    broken = Subst(op.ReLU(X), lambda match: 1 / 0, name="broken")
    with pytest.raises(RewriteError, match=r"relus: in the function 'main': broken .*ZeroDivisionError"):
        gsl.relax.Pass(broken, name="relus")(module())
    swap = RuleSet([
        Subst(op.ReLU(X), op.Sigmoid(X), name="there"), Subst(op.Sigmoid(X), op.ReLU(X), name="back")
    ])  # fmt: skip
    with pytest.raises(FixpointError, match="in the function 'main'"):
        gsl.relax.Pass(swap, iterative=True)(module())


def test_an_interrupt_comes_out_of_tvm_as_it_is() -> None:
    def interrupted(match: Match) -> bool:
        raise KeyboardInterrupt

    before = module()
    with pytest.raises(KeyboardInterrupt):
        gsl.relax.Pass(Subst(op.ReLU(X), X, where=interrupted))(before)
    tvm.ir.assert_structural_equal(before, module())


def test_a_pass_takes_modules_without_relax_functions() -> None:
    empty = tvm.IRModule({})
    assert gsl.relax.Pass(RELU_TWICE)(empty).same_as(empty)


def test_a_function_may_be_declared_to_return_nothing() -> None:
    """Its callers refer to it by a variable that has its type, so the type stays."""
    old = module()["main"]
    void = relax.Function(old.params, old.body, tvm.ir.TupleType([])).without_attr("global_symbol")
    helper, y = tvm.ir.GlobalVar("helper"), tensor("y", 2)
    _update_type(helper, void.ty)
    builder = relax.BlockBuilder(tvm.IRModule({helper: void}))
    with builder.function("main", [y]):
        builder.emit_func_output(builder.emit(relax.Call(helper, [y])))
    before = builder.get()
    after = gsl.relax.Pass(RELU_TWICE)(before)
    assert len(lines(after, "helper")) == 1
    assert after["helper"].ret_ty == before["helper"].ret_ty
    relax.analysis.well_formed(after)


@pytest.mark.parametrize("codegen", [None, "mine"])
def test_equal_groups_of_several_functions_are_one(codegen: str | None) -> None:
    given = {} if codegen is None else {"codegen": codegen}
    after = gsl.relax.Pass(Subst(op.ReLU(op.ReLU(X)), pat.Fused("two", **given)))(module())
    name = "fused_two" if codegen is None else "fused_two_mine"
    assert {var.name_hint for var in after.functions} == {"main", "other", name}
    assert [lines(after, function) for function in ("main", "other")] == [[f"two = {name}(x)"]] * 2
    other = gsl.relax.Pass(Subst(op.ReLU(op.ReLU(X)), pat.Fused("two", level=1, **given)), functions="other")
    first = gsl.relax.Pass(Subst(op.ReLU(op.ReLU(X)), pat.Fused("two", **given)), functions="main")
    assert len(other(first(module())).functions) == 4
