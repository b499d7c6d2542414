"""Programs of torch under true rules: equal numbers, a valid graph, and the same by every way of rewriting."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from typing import Any

import torch
from hypothesis import assume, event
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from gsl import RuleSet, Subst, Workload
from gsl.errors import FixpointError
from gsl.front.fx import from_graph_module
from gsl.rewrite.apply import apply
from gsl.rules import RULES
from tests.fuzz.laws import LAWS, Abstraction, is_canonical, made_of_parts
from tests.fuzz.programs import FORMS, PURE, STEPS, Program, inputs, steps, workload
from tests.fuzz.target import target
from tests.rewrite.checks import faults

STRATEGIES = ("priority", "largest", "first", "last")
OUTPUTS = ("one", "two", "nested")


def drawn(data: st.DataObject, kinds: Any, forms: tuple[str, ...]) -> tuple[Program, str, Workload]:
    """A program, the form of its graph, and its workload. Left out is what torch itself refuses."""
    program = Program(data.draw(steps(list(kinds))), data.draw(st.sampled_from(OUTPUTS))).eval()
    form = data.draw(st.sampled_from(forms))
    try:
        with torch.no_grad():
            program(*[value.clone() for value in inputs()])
        return program, form, workload(program, form)
    except (RuntimeError, torch._dynamo.exc.UserError):
        assume(False)
        raise


def rules_of(data: st.DataObject, old: Workload) -> RuleSet:
    """Some laws, some rules of the rule book, and some that are parts of the graph; with a strategy."""
    chosen = list(data.draw(st.lists(st.sampled_from([*LAWS, *RULES.values()]), max_size=4, unique=True)))
    chosen += made_of_parts(data.draw(st.integers(0, 2)), lambda name: Abstraction(data, old.graph).rule(name))
    return RuleSet(chosen, strategy=data.draw(st.sampled_from(STRATEGIES)))


def text_of(old: Workload) -> str:
    """All that a rewrite may not change."""
    return f"{old.mod.graph}\n{old.mod.code if hasattr(old.mod, 'code') else ''}\n{old.graph}"


def compared(old: Workload, new: Workload) -> None:
    """Equal numbers, also in what is changed in place."""
    old.compare(new, rtol=1e-5, atol=1e-6).check()


@target("programs", examples=45)
def check_program(data: st.DataObject) -> None:
    program, form, old = drawn(data, STEPS, FORMS)
    rules = rules_of(data, old)
    iterative = data.draw(st.booleans())
    before = text_of(old)
    state = {name: value.clone() for name, value in old.params.items()}
    try:
        new = rules(old, iterative=iterative, max_steps=60)
    except FixpointError:
        assert text_of(old) == before
        return
    event("fired" if new.trace.count() else "did not fire")
    assert text_of(old) == before
    assert all(torch.equal(value, old.params[name]) for name, value in state.items())
    new.mod.graph.lint()
    assert faults(old.graph) == []
    assert faults(new.graph) == []
    compared(old, new)
    for alike in (False, True) if form == "traced" else (False,):
        for before, after in zip(run_twice(old, form, alike=alike), run_twice(new, form, alike=alike), strict=True):
            torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert str(new.trace.replay(old)) == str(new)
    again = Workload(new.program.store(new.graph.copy()))
    assert str(again.graph) == str(new.graph)
    if iterative and all(kind in PURE for kind, *_ in program.steps):
        at_its_end(rules, new)
    if form == "traced":
        in_place(program, rules, new, iterative)


def run_twice(wl: Workload, form: str, *, alike: bool = False) -> list[Any]:
    """What a run has returned, after a second run with the same inputs, which may change them in place; ``alike`` are
    inputs that are one tensor."""
    run, values = wl.mod if form == "traced" else wl.exported.module(), inputs()
    values = (values[0], values[0]) if alike else values
    torch.manual_seed(0)
    with torch.no_grad():
        first = run(*values)
        run(*values)
    found: list[Any] = tree_leaves(first)
    return found


def at_its_end(rules: RuleSet, new: Workload) -> None:
    """Where rules were applied until none fired, none fires once more.

    Calls in place are left out: one that nobody can tell from a functional call any more is read as that.
    """
    assert rules(new, iterative=True, max_steps=60).trace.summary() == {}


def in_place(program: Program, rules: RuleSet, new: Workload, iterative: bool) -> None:
    """Writing the rewritten view into the graph itself gives what a copy is."""
    module = torch.fx.symbolic_trace(program)
    source = from_graph_module(module, inputs())
    view, _ = apply(
        list(rules), source.load(), strategy=rules.strategy, iterative=iterative, max_steps=60, evaluate=source.evaluate
    )
    source.update(view)
    module.graph.lint()
    module.recompile()
    mine = Workload.from_fx(module, inputs())
    assert mine.op_counts() == new.op_counts()
    compared(new, mine)


@target("relax", examples=12)
def check_relax(data: st.DataObject) -> None:
    """A rule gives the same operators in torch and in Relax."""
    _, _, old = drawn(data, RELAX, ("exported",))
    other = in_relax(old)
    assume(other is not None)
    assert other is not None
    types = [[node.type for node in wl.graph.outputs] for wl in (old, other)]
    if old.op_counts() != other.op_counts() or types[0] != types[1]:
        event("TVM imports something else")  # as a linear layer of float64, which it makes one of float32
        return
    chosen = data.draw(st.lists(st.sampled_from(LAWS), min_size=1, max_size=4, unique=True))
    rules = RuleSet([*chosen, *own_rules(data, old)])
    # The views count, as what a rule makes may be spelt by other operators in one framework.
    (one, trace), (two, other_trace) = (apply(list(rules), wl.graph, strategy=rules.strategy) for wl in (old, other))
    event("fired" if trace.count() else "did not fire")
    assert Counter(node.op for node in one if is_canonical(node)) == Counter(n.op for n in two if is_canonical(n))
    assert trace.summary() == other_trace.summary()
    compared(old, rules(old))
    old.compare(rules(other), inputs(), rtol=1e-5, atol=1e-5).check()


def own_rules(data: st.DataObject, old: Workload) -> list[Subst]:
    return [rule for rule in rules_of(data, old) if rule.name.startswith("own")]


RELAX = tuple(sorted(PURE.keys() - {"opaque", "topk", "size", "view", "rows", "norm"}))
"""The kinds of steps that are the same operators there."""


def in_relax(old: Workload) -> Workload | None:
    """The same program as TVM imports it, ``None`` where it can't."""
    from tvm.relax.frontend.torch import from_exported_program

    try:
        module = from_exported_program(old.exported, run_ep_decomposition=False)
    except Exception:
        return None
    return Workload.from_relax(module)


@target("onnx", examples=12)
def check_onnx(data: st.DataObject) -> None:
    """A program comes from an exporter to ONNX, and rules leave its numbers as they are, in a copy and in place."""
    from gsl.onnx import Pass
    from tests.front.onnx.onnx_helpers import bytes_of, check, nodes

    program, _, _ = drawn(data, sorted(PURE.keys() - {"opaque"}), ("traced",))
    old = in_onnx(program)
    assume(old is not None)
    assert old is not None
    rules = rules_of(data, old)
    before = bytes_of(old.model)
    try:
        new = rules(old, max_steps=60)
    except FixpointError:
        return
    event("fired" if new.trace.count() else "did not fire")
    assert bytes_of(old.model) == before
    assert faults(new.graph) == []
    check(new.model)
    compared(old, new)
    model = old.model.clone()
    Pass(rules)(model)
    assert nodes(model) == nodes(new.model)
    compared(new, Workload(model))


def in_onnx(program: Program) -> Workload | None:
    """A program in single precision as the exporter by tracing writes it, ``None`` where it can't, or where
    onnxruntime can't run that."""
    import onnx

    file = io.BytesIO()
    values = tuple([value.float() for value in inputs()])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(program.float(), values, file, dynamo=False, opset_version=17)
        found = Workload.from_onnx(onnx.load_from_string(file.getvalue()))
        found.program.build()(*[value.numpy() for value in values])
    except Exception:
        return None
    return found
