"""A match as the small model of ONNX that functions of onnxscript's rules are given, and what they make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir
import torch

from gsl import pat
from gsl.attr.ast import Literal
from gsl.errors import FrontEndError
from gsl.exchange.imported import patterns_of
from gsl.front.core.handle import handle_of, intact, is_literal
from gsl.front.core.infer import type_of_literal
from gsl.front.onnx import opaque, spellings
from gsl.front.onnx.load import OnnxLoader
from gsl.front.onnx.types import DTYPES, annotate, const_tensor, number, to_onnx, to_torch
from gsl.graph import CONST, GETITEM, PARAM, TUPLE, Node, SymDim, TupleType, Type
from gsl.graph.types import dim
from gsl.match import Match
from gsl.pat import Pattern

OPSET: Final = 21
"""The version of ONNX's operators in which calls are shown that come from no model of ONNX."""


class OnnxExcerpt(spellings.OnnxTarget):
    """The nodes that a match covers, as a model. What is as the user's model has it is shown as it is there, all else
    as calls are written; what the match does not cover are inputs and initialisers.

    FrontEndError for calls that ONNX can't say.
    """

    def __init__(self, match: Match) -> None:
        self.covered = frozenset(match.inner)
        self.values: dict[Node, Any] = {}
        """The value of each node of the view; a tuple of values for a node of several results."""
        self.leaves: dict[ir.Value, Node] = {}
        self.sizes: dict[str, SymDim] = {}
        """The symbolic sizes by the names that they have in the model."""
        self._copies: dict[ir.Value, ir.Value] = {}
        self._nodes: list[ir.Node] = []
        imports = self._imports(match.inner)
        self.is_of_model = imports is not None
        """True if the user's model is one of ONNX."""
        self.imports = {"": OPSET, **(imports or {})}
        super().__init__(self.imports[""])  # without inputs: a size that is known at run time only is not shown
        # The first nodes of the model are what onnxscript tries for the later outputs of a pattern.
        self.outputs = [self.value(node) for node in reversed(match.outputs)][::-1]
        used_outside = (node for node in match.inner if not self.covered.issuperset(node.users))
        shared = [self.values[node] for node in used_outside if node in self.values]
        ends = dict.fromkeys([*self.outputs, *(value for value in shared if isinstance(value, ir.Value))])
        known = [value for value in (*self.leaves, *self._copies.values()) if value.producer() is None]
        fixed = [value for value in known if value.const_value is not None]
        graph = ir.Graph(
            [value for value in known if value.const_value is None], list(ends), nodes=self._nodes,
            initializers=list({value.name: value for value in fixed}.values()), opset_imports=self.imports,
        )  # fmt: skip
        self.model = ir.Model(graph, ir_version=10)

    def _imports(self, nodes: Sequence[Node]) -> Mapping[str, int] | None:
        """The versions of the domains of the user's model; ``None`` if that is not one of ONNX."""
        for node in nodes:
            handle = handle_of(node)
            native = None if handle is None else handle.reading.native
            root = native.producer() if isinstance(native, ir.Value) else native
            if isinstance(root, ir.Node) and root.graph is not None:
                return root.graph.opset_imports
        return None

    # ------------------------------------------------------------ values

    def value(self, node: Node) -> Any:
        """The value of a node of the view."""
        if node not in self.values:
            self.values[node] = self._made(node) if node in self.covered else self._leaf(node)
        return self.values[node]

    def _leaf(self, node: Node) -> Any:
        if node.op == TUPLE:
            return tuple(map(self.value, node.operands))
        value = ir.Value(name=node.name or f"leaf_{len(self.leaves)}")
        if node.op in (PARAM, CONST):
            tensor = node.attrs["value"]
            tensor = number(tensor, node.dtype or "float32") if is_literal(node) else tensor
            value.const_value = to_onnx(tensor, value.name)
        self.note(value, node.type)
        self.leaves[value] = node
        return value

    def _made(self, node: Node) -> Any:
        handle = handle_of(node)
        if node.op == GETITEM:
            return self.value(node.operands[0])[node.attrs["index"]]
        if node.op == TUPLE:
            return tuple(map(self.value, node.operands))
        found = intact(node, ()) if handle is not None and handle.is_root else None
        native = None if handle is None else handle.reading.native
        root = native.producer() if isinstance(native, ir.Value) else native
        if found is None or not isinstance(root, ir.Node):
            return self._written(node)
        _, arguments = found
        for inner in handle.reading.through:  # type: ignore[union-attr]
            self._copied(inner.producer(), arguments)
        made = self._copied(root, arguments)
        self._note_all(made, node)
        return made[0] if isinstance(native, ir.Value) else made

    def _copied(self, old: ir.Node, arguments: Mapping[Any, Node]) -> tuple[ir.Value, ...]:
        """The outputs of a node of the user's model, once more."""
        inputs = [None if value is None else self._input(value, arguments) for value in old.inputs]
        new = ir.Node(
            old.domain, old.op_type, inputs, list(old.attributes.values()), overload=old.overload,
            num_outputs=len(old.outputs), name=old.name,
        )  # fmt: skip
        for value, own in zip(new.outputs, old.outputs):
            value.name, value.type, value.shape = own.name, own.type, own.shape
            self._copies[own] = value
        self._nodes.append(new)
        return tuple(new.outputs)

    def _input(self, value: ir.Value, arguments: Mapping[Any, Node]) -> ir.Value:
        if value in arguments:
            return self.value(arguments[value])  # type: ignore[no-any-return]
        if value not in self._copies:
            # An operand that the view has as an attribute.
            tensor = ir.convenience.get_const_tensor(value)
            self._copies[value] = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=tensor)
        return self._copies[value]

    def _written(self, node: Node) -> Any:
        operands = [operand.attrs["value"] if is_literal(operand) and isinstance(node.op, str) else self.value(operand)
                    for operand in node.operands]  # fmt: skip
        if isinstance(node.op, str):
            try:
                return spellings.write(node.op, node.attrs, operands, self)
            except ValueError as error:
                raise FrontEndError(f"%{node.name}: {node.op} can't be shown in ONNX: {error}") from error
        op: Any = node.op
        inputs, attributes = opaque.arguments(op, operands, node.attrs)
        several = isinstance(node.type, TupleType)
        count = len(node.type.fields) if isinstance(node.type, TupleType) else 1
        made = tuple(self.node(op.name, inputs, attributes, domain=op.domain, outputs=count))
        self._note_all(made, node)
        return made if several else made[0]

    def _note_all(self, made: Sequence[ir.Value], node: Node) -> None:
        types = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
        for value, type in zip(made, types):
            self.note(value, type)

    def _name(self, size: SymDim) -> str:
        """The name of a symbolic size."""
        plain = size.expr.is_Symbol and not str(size).startswith(("unknown_", "size_"))
        name = str(size) if plain else next((n for n, s in self.sizes.items() if s == size), f"size_{len(self.sizes)}")
        self.sizes[name] = size
        return name

    # ------------------------------------------------------------ what writers ask for

    def note(self, value: ir.Value, type: Type | None) -> ir.Value:
        """Note the type of a value."""
        annotate(value, type, self._name)
        return super().note(value, type)

    def node(
        self, op: str, inputs: Sequence[Any], attributes: Sequence[ir.Attr], *, domain: str = "", outputs: int = 1
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        made = ir.Node(domain, op, inputs, attributes, num_outputs=outputs)
        for value in made.outputs:
            value.name = f"{op.lower()}_{len(self._nodes)}_{value.index()}"
        self._nodes.append(made)
        return made.outputs

    def tensor(self, tensor: Any) -> ir.Value:
        """A tensor as an initialiser."""
        native = to_onnx(tensor, f"literal_{len(self._copies)}")
        value = ir.Value(name=native.name, const_value=native)
        self._copies[value] = value
        return self.note(value, type_of_literal(tensor))


class OnnxscriptReplacement:
    """The replacement that a rule of onnxscript makes of an excerpt, as a view."""

    def __init__(self, excerpt: OnnxExcerpt, made: Any) -> None:
        nodes, own = made.new_nodes, set(made.new_nodes)
        given: dict[ir.Value, ir.Value] = {}

        def stand_in(value: ir.Value) -> ir.Value:
            return given.setdefault(value, _stand_in(value, len(given)))

        for node in nodes:
            for place, value in enumerate(node.inputs):
                if value is not None and value.producer() not in own:
                    node.replace_input_with(place, stand_in(value))
        ends = [value if value.producer() in own else stand_in(value) for value in made.new_outputs]
        for new, old in zip(ends, excerpt.outputs):
            new.type, new.shape = new.type or old.type, new.shape or old.shape
        fixed = {value: value.const_value is not None for value in given.values()}
        graph = ir.Graph(
            [value for value in fixed if not fixed[value]], ends, nodes=nodes,
            initializers=[value for value in fixed if fixed[value]],
            opset_imports={**dict.fromkeys([node.domain for node in nodes], 1), **excerpt.imports},
        )  # fmt: skip
        self._graph, self._ends = graph, ends
        loader = OnnxLoader(ir.Model(graph, ir_version=10))
        self.view = loader.load()
        owners = {value: node for node, value in excerpt.values.items() if isinstance(value, ir.Value)}
        self.sizes = {symbol.expr: excerpt.sizes[name] for name, symbol in loader.types.symbols.items()
                      if name in excerpt.sizes}  # fmt: skip
        for node in self.view.nodes:
            node.attrs = {name: self._own(value) for name, value in node.attrs.items()}
        names = {new.name: owners[old] for old, new in given.items() if old in owners}
        self.known = {node: names[node.name] for node in self.view.nodes if node.name in names}
        """The nodes of the match for which nodes of the view stand."""
        self._given = {new: pat.Exactly(owners[old]) for old, new in given.items() if old in owners}

    def _own(self, value: Any) -> Any:
        """An attribute with the symbolic sizes of the user's graph. FrontEndError if it has others."""
        if isinstance(value, tuple):
            return tuple(map(self._own, value))
        if not isinstance(value, SymDim):
            return value
        if not value.expr.free_symbols <= self.sizes.keys():
            raise FrontEndError(f"its replacement has the size {value}, which no operand has")
        return dim(value.expr.xreplace({symbol: size.expr for symbol, size in self.sizes.items()}))

    def is_same(self, new: Node, old: Node) -> bool:
        """True if a node of the view is what the match covers, in the same calls."""
        if new in self.known:
            return self.known[new] is old
        if new.op != old.op or len(new.operands) != len(old.operands):
            return False
        if new.op in (PARAM, CONST):
            return _equal(new.attrs["value"], old.attrs["value"])
        return new.attrs == old.attrs and all(map(self.is_same, new.operands, old.operands))

    def patterns(self) -> list[Pattern]:
        """The outputs as patterns on the nodes of the match."""
        return patterns_of(self.view, lambda node: pat.Exactly(self.known[node]) if node in self.known else None)

    def by_name(self) -> list[Pattern]:
        """The outputs as calls of ONNX by their names. FrontEndError for constants of dtypes that the view lacks."""
        made: dict[ir.Value, Pattern] = dict(self._given)

        def of(value: ir.Value) -> Pattern:
            if value not in made:
                tensor = const_tensor(value)
                if tensor is None or tensor.dtype not in DTYPES:
                    raise FrontEndError("both sides are the same calls here")
                made[value] = pat.Const(to_torch(tensor))
            return made[value]

        for node in self._graph:
            if node.op_type != "Constant":
                attrs = {name: Literal(value) for name, value in opaque.attributes(node).items()}
                operands = [of(value) for value in node.inputs if value is not None]
                call = pat.Call(opaque.target_of(node), *operands, **attrs)
                several = len(node.outputs) > 1
                made.update({value: call[place] if several else call for place, value in enumerate(node.outputs)})
        return [of(value) for value in self._ends]


def _equal(one: Any, other: Any) -> bool:
    """True for equal numbers, and for equal tensors of one dtype."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _stand_in(value: ir.Value, number: int) -> ir.Value:
    """A value like one of an excerpt, for a model of its own."""
    new = ir.Value(name=f"given_{number}", type=value.type, shape=value.shape, const_value=value.const_value)
    if value.const_value is not None:
        new.type, new.shape = ir.TensorType(value.const_value.dtype), ir.Shape(value.const_value.numpy().shape)
    return new


def replacement(rule: Any, match: Match) -> list[Pattern] | str:
    """The patterns that a rule of onnxscript makes of the outputs of a match, or the reason why it makes none."""
    excerpt = OnnxExcerpt(match)
    made = _replaced(rule, excerpt)
    if isinstance(made, str):
        return made
    found = OnnxscriptReplacement(excerpt, made)
    if not all(map(found.is_same, found.view.outputs, match.outputs)):
        return found.patterns()
    return found.by_name() if excerpt.is_of_model else "both sides are the same calls here"


def _replaced(rule: Any, excerpt: OnnxExcerpt) -> Any:
    """The subgraph that a rule makes of an excerpt, or the reason why it makes none."""
    graph = excerpt.model.graph
    tracer = _Reasons()
    if rule.graph_pre_visitor:
        rule.graph_pre_visitor()
    for node in reversed(list(graph)):
        found = rule.match(
            excerpt.model, graph, node, check_nodes_are_removable=rule.remove_nodes, tracer=tracer,
        )  # fmt: skip
        if found and list(found.outputs) == excerpt.outputs:
            made = rule._replacement_pattern.get_replacement(found)
            if rule.graph_post_visitor:
                rule.graph_post_visitor()
            return made if made is not None else found.reason or "its replacement function makes nothing of this match"
    return tracer.checked or tracer.reason


class _Reasons:
    """The reasons for which a rule leaves nodes alone: that of its check, and of its pattern at the first node."""

    checked = ""
    reason = ""

    def log(self, rule: Any, graph: Any, node: Any, match: Any, status: Any) -> None:
        """A reason, as onnxscript tells its tracers."""
        if status.name == "CONDITION_FAILED":
            self.checked = self.checked or match.reason
        self.reason = self.reason or f"its pattern is written in other calls: {match.reason}"
