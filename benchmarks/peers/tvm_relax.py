"""TVM Relax: the same graphs as modules, its ways to rewrite them, and GSL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import PatternContext, is_op, is_tuple_get_item, rewrite_bindings, rewrite_call, wildcard

from benchmarks.measure import Job, System
from benchmarks.terms import Rule, Terms, Tree, read, require_same
from gsl import Subst, Workload

OPERATORS: dict[str, tuple[str, Callable[..., Any]]] = {
    "conv": ("relax.nn.conv2d", relax.op.nn.conv2d),
    "batch_norm": ("relax.nn.batch_norm", lambda *operands: relax.op.nn.batch_norm(*operands, axis=1)),
    "relu": ("relax.nn.relu", relax.op.nn.relu),
    "add": ("relax.add", relax.op.add),
    "exp": ("relax.exp", relax.op.exp),
    "log": ("relax.log", relax.op.log),
    "sin": ("relax.sin", relax.op.sin),
    "abs": ("relax.abs", relax.op.abs),
    "sqrt": ("relax.sqrt", relax.op.sqrt),
    "neg": ("relax.negative", relax.op.negative),
    "tanh": ("relax.tanh", relax.op.tanh),
}
"""The operators of Relax for those of terms: their names, and what makes a call."""
_LABELS = {name: label for label, (name, _) in OPERATORS.items()}
_PACKED = tvm.ir.Op.get("relax.call_pure_packed")
Shapes = Mapping[str, tuple[int, ...]]


def module_of(terms: Terms, shapes: Shapes) -> tvm.IRModule:
    """The graph as the dataflow block of a function ``main``."""
    builder = relax.BlockBuilder()
    values: list[Any] = [relax.Var(name, relax.TensorType(shapes[name], "float32")) for name in terms.inputs]
    with builder.function("main", list(values)):
        with builder.dataflow():
            for label, operands in terms.calls:
                value = builder.emit(OPERATORS[label][1](*[values[operand] for operand in operands]))
                if label == "batch_norm":
                    value = builder.emit(relax.TupleGetItem(value, 0))
                values.append(value)
            result = builder.emit_output(values[terms.outputs[0]])
        builder.emit_func_output(result)
    return builder.get()


def terms_of(module: tvm.IRModule) -> Terms:
    """The terms of the function ``main``; a call of a composite function is an operator of that name."""
    function = module["main"]
    aliases: dict[Any, Any] = {}
    calls = []
    for block in function.body.blocks:
        for binding in block.bindings:
            value, var = binding.value, binding.var
            if isinstance(value, relax.Var):
                aliases[var] = aliases.get(value, value)
            elif isinstance(value, relax.TupleGetItem):
                aliases[var] = aliases.get(value.tuple_value, value.tuple_value)
            else:
                operator, operands = value.op, list(value.args)
                if operator == _PACKED:
                    operator = operands.pop(0)
                calls.append((var, _label(module, operator), [aliases.get(arg, arg) for arg in operands]))
    result = aliases.get(function.body.body, function.body.body)
    return read([(param.name, param) for param in function.params], calls, [result])


def _label(module: tvm.IRModule, operator: Any) -> str:
    if isinstance(operator, tvm.ir.GlobalVar):
        return str(module[operator].attrs["Composite"])
    if isinstance(operator, relax.ExternFunc):
        return str(operator.global_symbol)
    return _LABELS.get(operator.name, str(operator.name))


def _pattern(tree: Tree, leaves: dict[str, Any]) -> Any:
    if isinstance(tree, str):
        return leaves.setdefault(tree, wildcard())
    call = is_op(OPERATORS[tree[0]][0])(*[_pattern(operand, leaves) for operand in tree[1:]])
    return is_tuple_get_item(call, 0) if tree[0] == "batch_norm" else call


def _made(tree: Tree, leaves: Mapping[str, Any]) -> Any:
    if isinstance(tree, str):
        return leaves[tree]
    if tree[0] not in OPERATORS:
        operands = [leaves[leaf] for leaf in tree[1:]]
        return relax.op.call_pure_packed(tree[0], *operands, ty_args=[operands[0].ty])
    return OPERATORS[tree[0]][1](*[_made(operand, leaves) for operand in tree[1:]])


def fuse_ops(terms: Terms, rule: Rule, expected: Terms, shapes: Shapes) -> System:
    """``FuseOpsByPattern``: each match becomes a call of a composite function."""
    module = module_of(terms, shapes)
    transform = relax.transform.FuseOpsByPattern([(rule.name, _pattern(rule.source, {}))], bind_constants=False)
    return lambda: Job(lambda: transform(module), lambda result: require_same(terms_of(result), expected))


def call_rewriting(terms: Terms, rule: Rule, target: Tree, expected: Terms, shapes: Shapes) -> System:
    """``rewrite_call`` from module to module; the target is made of Relax's operators."""
    module = module_of(terms, shapes)
    leaves: dict[str, Any] = {}
    pattern = _pattern(rule.source, leaves)

    def rewriter(call: Any, found: Mapping[Any, Any]) -> Any:
        return _made(target, {leaf: found[one] for leaf, one in leaves.items()})

    def work() -> tvm.IRModule:
        return tvm.IRModule({"main": rewrite_call(pattern, rewriter, module["main"])})

    return lambda: Job(work, lambda result: require_same(terms_of(result), expected))


def bindings_rewriting(terms: Terms, rule: Rule, target: Tree, expected: Terms, shapes: Shapes) -> System:
    """``rewrite_bindings`` from module to module."""
    module = module_of(terms, shapes)
    leaves: dict[str, Any] = {}
    with PatternContext() as context:
        pattern = _pattern(rule.source, leaves)

    def rewriter(found: Mapping[Any, Any], bindings: Mapping[Any, Any]) -> dict[Any, Any]:
        return {found[pattern]: _made(target, {leaf: found[one] for leaf, one in leaves.items()})}

    def work() -> tvm.IRModule:
        return tvm.IRModule({"main": rewrite_bindings(context, rewriter, module["main"])})

    return lambda: Job(work, lambda result: require_same(terms_of(result), expected))


def gsl(terms: Terms, rule: Subst, expected: Terms, shapes: Shapes) -> System:
    """GSL from module to module: load, match, check, rewrite, store."""
    module = module_of(terms, shapes)

    def work() -> tvm.IRModule:
        return rule(Workload.from_relax(module), fold_params=False).mod

    return lambda: Job(work, lambda result: require_same(terms_of(result), expected))


def gsl_engine(terms: Terms, rule: Subst, shapes: Shapes) -> System:
    """GSL on a view of the module that is loaded already."""
    workload = Workload.from_relax(module_of(terms, shapes))
    view = workload.graph
    return lambda: Job(lambda: rule.apply(view))


def run(module: tvm.IRModule, inputs: Sequence[Any]) -> Any:
    """The result of a module on TVM's virtual machine, as an array."""
    workload = Workload.from_relax(module)
    return workload(*inputs)
