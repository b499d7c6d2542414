"""The same graphs in the IR of ONNX: GSL, onnxscript's rewriter, and onnxruntime's optimiser of files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule, RewriteRuleSet

from benchmarks.measure import Job, System
from benchmarks.terms import Rule, Terms, Tree, read, require_same
from gsl import RuleSet, Subst, Workload, pat
from gsl import op as canonical
from gsl.onnx import Pass
from gsl.spec.natives import OnnxOp

OPERATORS = {
    "conv": "Conv",
    "batch_norm": "BatchNormalization",
    "relu": "Relu",
    "add": "Add",
    "exp": "Exp",
    "log": "Log",
    "sin": "Sin",
    "abs": "Abs",
    "sqrt": "Sqrt",
    "neg": "Neg",
    "tanh": "Tanh",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "sigmoid": "Sigmoid",
}
"""The operators of ONNX for those of terms."""
_LABELS = {name: label for label, name in OPERATORS.items()}
DOMAIN = "benchmarks"
SHAPE = (4,)


def graph_of(terms: Terms) -> ir.Model:
    """The graph as a model."""
    tensor = ir.TensorType(ir.DataType.FLOAT)
    values = [ir.Value(name=name, type=tensor, shape=ir.Shape(SHAPE)) for name in terms.inputs]
    nodes = []
    for number, (label, operands) in enumerate(terms.calls):
        nodes.append(ir.Node("", OPERATORS[label], [values[operand] for operand in operands], name=f"n{number}"))
        values.append(nodes[-1].outputs[0])
        values[-1].name, values[-1].type, values[-1].shape = f"v{number}", tensor, ir.Shape(SHAPE)
    inputs, outputs = values[: len(terms.inputs)], [values[output] for output in terms.outputs]
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": 20, DOMAIN: 1}, name="benchmark")
    return ir.Model(graph, ir_version=10)


def terms_of(model: ir.Model) -> Terms:
    """The terms of a model."""
    calls = [(node.outputs[0], _LABELS.get(node.op_type, node.op_type), node.inputs) for node in model.graph]
    return read([(str(value.name), value) for value in model.graph.inputs], calls, model.graph.outputs)


def _function(leaves: Sequence[str], body: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    """A function with the leaves as its parameters, because onnxscript looks at their names."""
    names = ", ".join(leaves)
    made: Callable[..., Any] = eval(f"lambda op, {names}: body(op, dict(zip(names, ({names},))))",
                                    {"body": body, "names": tuple(leaves)})  # fmt: skip
    return made


def _rule(rule: Rule) -> RewriteRule:
    def pattern(op: Any, leaves: dict[str, Any]) -> Any:
        def build(tree: Tree) -> Any:
            return leaves[tree] if isinstance(tree, str) else getattr(op, OPERATORS[tree[0]])(*map(build, tree[1:]))

        return build(rule.source)

    def replacement(op: Any, leaves: dict[str, Any]) -> Any:
        return getattr(op, rule.name)(*leaves.values(), _domain=DOMAIN)

    return RewriteRule(_function(rule.leaves, pattern), _function(rule.leaves, replacement), name=rule.name)


def rewriter(terms: Terms, rules: Sequence[Rule], expected: Terms) -> System:
    """The rules as a set, applied to a model in place; the rules are made before."""
    chosen = RewriteRuleSet([_rule(rule) for rule in rules])

    def prepare() -> Job:
        model = graph_of(terms)

        def work() -> ir.Model:
            chosen.apply_to_model(model)
            return model

        return Job(work, lambda result: require_same(terms_of(result), expected))

    return prepare


def _subst(rule: Rule) -> Subst:
    """A rule of GSL, of operators that are spelled alike in the vocabulary."""
    leaves = {name: pat.Wildcard() for name in rule.leaves}

    def build(tree: Tree) -> Any:
        if isinstance(tree, str):
            return leaves[tree]
        name = {"neg": "Negative"}.get(tree[0], OPERATORS[tree[0]])
        return getattr(canonical, name)(*map(build, tree[1:]))

    return Subst(build(rule.source), pat.Call(OnnxOp(rule.name, DOMAIN), *leaves.values()), name=rule.name)


def gsl_systems(terms: Terms, rules: Sequence[Rule], expected: Terms) -> tuple[System, System]:
    """GSL with these rules: as a new model, the old one unchanged, and as a pass that changes the model itself."""
    chosen = RuleSet(map(_subst, rules))
    change = Pass(chosen)

    def check(result: ir.Model) -> None:
        require_same(terms_of(result), expected)

    def new() -> Job:
        model = graph_of(terms)
        return Job(lambda: chosen(Workload.from_onnx(model)).model, check)

    def in_place() -> Job:
        model = graph_of(terms)
        return Job(lambda: change(model).model, check)

    return new, in_place


def offline(terms: Terms) -> System:
    """onnxruntime's own optimiser of files, which takes no rules of users: it reads a model and writes another one."""
    import onnxruntime

    def prepare() -> Job:
        data = ir.to_proto(graph_of(terms)).SerializeToString()

        def work() -> None:
            with tempfile.TemporaryDirectory() as folder:
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 4
                options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
                onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

        return Job(work)

    return prepare
