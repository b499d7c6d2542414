"""A graph of ONNX to a view: every node becomes the tree of its canonical reading, or one opaque node."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import onnx_ir as ir

from gsl.front.core.handle import NativeLeaf, Reading, Single, handle_of
from gsl.front.core.infer import inferred, refined, shortest
from gsl.front.core.load import Expansion, Loader, Rows, recorded
from gsl.front.core.opaque import attributes_of
from gsl.front.onnx import groups, opaque, spellings
from gsl.front.onnx.copying import quick
from gsl.front.onnx.dims import sizes_of
from gsl.front.onnx.files import check_version, checked, version_of
from gsl.front.onnx.infer import declared_types, infer
from gsl.front.onnx.spellings.reading import SMALL, is_made_by
from gsl.front.onnx.types import DTYPES, OnnxTypes, const_tensor, data_of
from gsl.front.tree import Canon
from gsl.graph import CONST, GETITEM, INPUT, PARAM, Dim, Graph, Node, TensorType, TupleType, Type, UnreadWeight
from gsl.graph.subgraph import Subgraph
from gsl.spec import TABLE, DeclaredSpec, meaning
from gsl.spec.natives import OnnxOp

FEW: Final = 1024
"""The number of bytes up to which what is computed of literals is known when a model is loaded."""

INITIALIZER = OnnxOp("Initializer", "gsl")
"""Stands for the operator of an initialiser of which torch has no tensor: of strings, of numbers of four bits."""


class OnnxForm(NamedTuple):
    """The reading of calls that differ in nothing but their operands."""

    rows: Rows
    fact: int
    """The number of the facts about the result; 0 if each result has its own."""
    is_whole: bool
    """True if a call is one node of its operands."""
    through: tuple[int, ...]
    """The places of the operands whose nodes the reading covers; the operands of these are those of the rows, too."""


FORMS: Final[dict[int, dict[Any, OnnxForm]]] = {}
"""The forms of calls in models of each version of ONNX's operators, by the facts on which their readings depend."""
FACTS: Final[dict[Any, int]] = {}
"""The numbers of facts about values, from 1: they are compared faster than these."""
MOST: Final = 4096
"""The number of forms that are kept; of facts, eight times as many are."""
_NUMBERS: Final = itertools.count(1)

_PLAIN: Final = frozenset(map(id, (
    ir.AttributeType.FLOAT, ir.AttributeType.INT, ir.AttributeType.STRING, ir.AttributeType.INTS,
    ir.AttributeType.STRINGS,
)))  # fmt: skip
"""The kinds of attributes that are told apart, by identity: members of an enumeration take long to be hashed. Lists of
floats are not among them, as 0.0 and -0.0 are equal."""


_NAME: Final = quick(ir.Value, "name")
_DECLARED: Final = quick(ir.Value, "name", "type", "shape")
_ATTRIBUTE: Final = quick(ir.Attr, "type", "value", "ref_attr_name")
PARTS: Final = quick(ir.Node, "inputs", "outputs", "attributes.data", "op_type", "domain", "overload")


class OnnxLeaf(NativeLeaf):
    """An initialiser or the output of a ``Constant``."""

    __slots__ = ("value",)

    def __init__(self, value: ir.Value) -> None:
        self.value = value


def weights_of(model: ir.Model) -> dict[str, ir.Value]:
    """The initialisers of the main graph that nobody can replace when the model is run.

    An initialiser that is an input, too, is the default of that input; before version 4 of the format all were.
    """
    version = model.ir_version
    is_default = (lambda value: False) if version is not None and version < 4 else ir.Value.is_graph_input
    return {name: value for name, value in model.graph.initializers.items() if not is_default(value)}


def by_target(operators: Mapping[str, DeclaredSpec]) -> Mapping[OnnxOp, list[DeclaredSpec]]:
    """The operators of users of which calls are read, by the operators of ONNX that these call."""
    found: dict[OnnxOp, list[DeclaredSpec]] = {}
    for name, spec in operators.items():
        if "." in name.partition("::")[0]:
            found.setdefault(opaque.target_named(name), []).append(spec)
    return found


def counted(node: ir.Node) -> list[int]:
    """The places of the outputs of a node that are used, and that of the first one if none is."""
    if len(node.outputs) == 1:
        return [0]
    return [place for place, value in enumerate(node.outputs) if value.uses() or value.is_graph_output()] or [0]


def node_of(native: Any) -> ir.Node | None:
    """The node that computes what a view node stands for; ``None`` for an input or a weight."""
    return native.producer() if isinstance(native, ir.Value) else native


def targets(node: Node) -> Iterator[OnnxOp]:
    """The operators of ONNX whose calls a view node stands for."""
    own = handle_of(node)
    natives = () if own is None else map(node_of, (*own.reading.through, own.reading.native))
    yield from (opaque.target_of(native) for native in natives if native is not None)


def is_constant(node: ir.Node | None) -> bool:
    """True for a node of ONNX that makes a tensor that is written in it."""
    return node is not None and node.op_type == "Constant" and not node.domain


def is_alias(node: ir.Node) -> bool:
    """True for a node that does nothing but let an output of the model be an input, a weight or another output."""
    if node.op_type != "Identity" or node.domain:
        return False
    if not node.outputs[0].is_graph_output() or node.outputs[0].uses():
        return False
    source = node.inputs[0] if len(node.inputs) == 1 else None
    producer = None if source is None else source.producer()
    return source is not None and (producer is None or is_constant(producer) or source.is_graph_output())


def why_unread(node: Node) -> str:
    """The reason why an opaque node is no canonical call, where that is for want of a type."""
    unknown = next((operand.name for operand in node.operands if operand.type is None), None)
    if unknown is None or not isinstance(node.op, OnnxOp) or node.op.domain or node.op.name not in spellings.READERS:
        return ""
    return f"the type of {unknown} is not known: declare it in the model, or the operator that makes it (gsl.operator)"


class OnnxLoader(Loader):
    """Builds the view of the main graph of a model. It is the scope of readings, too."""

    def __init__(self, model: ir.Model, operators: Mapping[str, DeclaredSpec] = MappingProxyType({})) -> None:
        super().__init__()
        self.model = model
        self.declared = operators
        """The operators of users by name."""
        self.operators = by_target(operators)
        self.weights = weights_of(model)
        self.opset = version_of(model) or 0
        self.types = OnnxTypes()
        self._types: dict[ir.Value, Type | None] = {}
        self._arrays: dict[ir.Value, Any] = {}
        self._sizes: dict[ir.Value, tuple[Dim, ...] | None] = {}
        self._forms = FORMS.setdefault(self.opset, {})
        self._foreign: dict[Any, OnnxForm] = {}
        """The forms of calls of other domains, of which users may declare operators."""
        self._facts: dict[ir.Value | None, int] = {None: -1}
        """The number of the facts about each value on which the reading of a call that uses it depends."""
        self._names: list[str | None] = []
        """The names of all values, in order."""
        self.is_flat = not model.functions
        """True if there are neither functions nor graphs in nodes."""

    def load_checked(self) -> Graph:
        """The view of a model that is not known to be sound. FrontEndError as :func:`gsl.front.onnx.files.checked`.

        What is used is looked up, so what is not computed before is found without another walk.
        """
        check_version(self.model)
        try:
            graph = self.load()
        except Exception:
            checked(self.model)
            raise
        names = list(filter(None, self._names))
        if not self.is_flat or len(set(names)) < len(names):
            checked(self.model)
        return graph

    def load(self) -> Graph:
        """The view. What computes nothing that the results need, and has no effect, is not in it;
        it stays as it is in the model."""
        graph = self.model.graph
        self._names += map(_NAME, dict.fromkeys((*graph.inputs, *graph.initializers.values())))
        for value in graph.inputs:
            if value.name not in self.weights:
                self.add(value, Node(INPUT, type=self.type_of(value), name=value.name or "", native=OnnxLeaf(value)))
        for value in self.weights.values():
            self._tensor(value)
        self._load_all(tuple(graph))
        results = [self.views[value] for value in graph.outputs]
        effects = [node for node in self.nodes if node.effect is not None]
        return Graph(self.alive([*results, *effects]), results, partial(infer, self.model))

    # ------------------------------------------------------------ leaves

    def _tensor(self, value: ir.Value) -> None:
        """Add a weight, a literal tensor without axes, or an opaque node for what is no tensor of torch's."""
        tensor = const_tensor(value)
        dtype: Any = None if tensor is None else tensor.dtype
        if dtype not in DTYPES:
            self.add(value, Node(INITIALIZER, name=value.name or "", native=Single(value)))
            return
        read, type = partial(data_of, tensor, value.name), self.types.plain(dtype, tensor.shape)
        is_small = math.prod(type.shape) * dtype.itemsize <= SMALL
        if ir.ExternalTensor in tensor.__class__.__mro__:  # of a protocol, isinstance takes six times as long
            tensor.numpy()  # which maps the file: it may be gone when somebody asks
        attrs = {"value": read()} if is_small else UnreadWeight(read)
        kind = PARAM if type.shape else CONST
        self.add(value, Node(kind, (), attrs, type, value.name or "const", OnnxLeaf(value)))

    # ------------------------------------------------------------ nodes

    def _load(self, node: ir.Node, key: Any) -> None:
        """Load a node, of which no one that is read alike was loaded: none that has the same key."""
        if is_constant(node) and _tensor_of(node.outputs[0]) is not None:
            self._tensor(node.outputs[0])
            return
        if is_alias(node):
            self.views[node.outputs[0]] = self.views[node.inputs[0]]
            return
        self.is_flat = self.is_flat and not any(True for _ in opaque.bodies(node))
        group, places = self._group(node), counted(node)
        native = node.outputs[0] if places == [0] and (group is None or len(node.outputs) == 1) else node
        call = spellings.OnnxCall(node, self)
        declared = self.operators.get(opaque.target_of(node), ()) if self.operators else ()
        canon = self._declared_call(call, declared, places) if declared else spellings.read(call, places)
        if canon is None or not self._tree(native, canon, call, key):
            self._opaque(native, node, group, key)
        if native is node:
            for place in places:
                self._field(node, place)

    def _declared_call(self, call: Any, declared: Iterable[DeclaredSpec], places: list[int]) -> Canon | None:
        """The reading of a node as a call of an operator that a user declared under its name; ``None`` if none fits."""
        operands = tuple([value for value in call.node.inputs if value is not None])
        types = tuple(map(self.type_of, operands))
        attrs = {name: shortest(value) if isinstance(value, float) else value
                 for name, value in opaque.attributes(call.node).items()}  # fmt: skip
        for spec in declared:
            given = attributes_of(spec, types, attrs)
            left_out = {name for name in spec.attrs if name.startswith("arg")}
            if given is not None and left_out <= attrs.keys() and (places == [0] or spec.fields):
                whole = Canon(spec.name, operands, given)
                return Canon(GETITEM, (whole,), {"index": 0}) if spec.fields and places == [0] else whole
        return None

    def _tree(self, native: Any, canon: Canon, call: spellings.OnnxCall, key: Any) -> bool:
        """Load the tree of a canonical reading, and note it under its key; False if the view can't hold it."""
        name = native.name or ""
        tree = Expansion(self.leaf, inferred)
        if not self.expand(tree, canon, native):
            return False
        *_, root = tree.nodes
        if root.type is None or any(node.type is None for node in tree.nodes):
            return False
        dtypes = tuple([None if value is None else self.views[value].dtype for value in call.inputs])
        told = None if call.node.domain else spellings.result_of(call.node.op_type, self.opset, dtypes)
        if told is not None and root.dtype not in (None, told):
            return False
        known = self.types.of(call.node.outputs[0])  # where the model declares none, the meaning tells it
        if known is not None and native is not call.node:
            # The model says something else than the meaning of the operator.
            found = refined(known, root.type)
            if found is None:
                return False
            root.type = found
        leaves = {source for sources in tree.sources for source in sources if not isinstance(source, int)}
        through = tuple([node.outputs[0] for node in call.through])
        inputs = _operands(call.node.inputs, through)
        extra = [value for value in inputs
                 if value not in leaves and value not in through and self.constant(value) is None]  # fmt: skip
        self.link(tree, Reading(native, len(tree.nodes), through), tuple(dict.fromkeys(extra)))
        if not call.looks_around:
            self._note(key, call.node, recorded(tree.nodes, tree.sources, "", inputs), through)
        root.name = name
        return True

    # ------------------------------------------------------------ nodes that are read alike

    def _load_all(self, nodes: Sequence[ir.Node]) -> None:
        """Load nodes in order; one that is read as an earlier one was, be it of another model, by the rows of that."""
        views, facts, add, note = self.views, self._facts, self.nodes.append, self._names.append
        own, foreign = self._forms, self._foreign
        for node, (inputs, outputs, attributes, op, domain, overload) in zip(nodes, map(PARTS, nodes)):
            if len(outputs) != 1:
                self._names += map(_NAME, outputs)
                self._key(None, inputs, {})  # which looks up what is used
                self._load(node, None)
                continue
            (native,) = outputs
            name, type, shape = _DECLARED(native)
            note(name)
            told = type.__class__ is ir.TensorType and shape is not None
            key: Any = op, domain, overload, (id(type.dtype), shape.dims) if told else None
            looks_at = spellings.THROUGH.get(op)
            if len(inputs) == 1 and not attributes and looks_at is None:
                key = key, facts.get(inputs[0]) or self._fact(inputs[0])
            else:
                key = self._key(key, inputs, attributes, looks_at)
            form = (foreign if domain else own).get(key)
            if form is None:
                self._load(node, key)
                continue
            if form.fact:
                facts[native] = form.fact
            if not form.is_whole:
                self._replay(node, form)
                continue
            (row,) = form.rows
            operands = (views[inputs[0]],) if len(inputs) == 1 else tuple([views[value] for value in inputs])
            views[native] = view = Node(row.op, operands, row.attrs, row.type, name or "", Single(native, inputs))
            add(view)

    def _replay(self, node: ir.Node, form: OnnxForm) -> None:
        """Load a node that is read as an earlier one was."""
        (native,), through = node.outputs, tuple([node.inputs[place] for place in form.through])
        used = _operands(node.inputs, through)
        reading = Reading(native, len(form.rows), through)
        self.replay(form.rows, reading, [self.views[value] for value in used], used, "").name = native.name or ""

    def _note(self, key: Any, node: ir.Node, rows: Rows, through: Sequence[ir.Value] = ()) -> None:
        """Note the rows by which a node was loaded under its key, if it has one; an alias is read otherwise."""
        if key is None or node.op_type == "Identity":
            return
        forms = self._foreign if node.domain else self._forms
        if len(forms) >= MOST:
            forms.clear()
        is_whole = len(rows) == 1 and rows[0].is_whole and None not in node.inputs
        places = tuple(map(node.inputs.index, through))
        forms[key] = OnnxForm(rows, _fact_of_call(rows[-1].type, node), is_whole, places)

    def _key(
        self, call: Any, inputs: Sequence[Any], attributes: Mapping[str, ir.Attr], looks_at: Set[str] | None = None
    ) -> tuple[Any, ...] | None:
        """The facts on which the reading of a call depends unless it looks around: its operator and type, its operands
        and the nodes of some operators that compute them, its attributes; ``None`` for attributes that are too much."""
        parts: list[Any] = [call, *[self._facts.get(value) or self._fact(value) for value in inputs]]
        above = [value for value in inputs if is_made_by(value, looks_at)] if looks_at else ()
        for value in above:
            node, is_shared = value.producer(), len(value.uses()) > 1 or value.is_graph_output()
            parts += is_shared, self._key(None, node.inputs, node.attributes.data)
        used = _operands(inputs, above) if above else inputs
        if len(used) > 1 and len(set(used)) < len(used):
            parts.append(tuple(map(used.index, used)))
        for name, (type, value, ref) in zip(attributes, map(_ATTRIBUTE, attributes.values())):
            kind = id(type)
            if kind not in _PLAIN or ref is not None:
                return None
            # 0.0 and -0.0 are equal
            parts += name, kind, tuple(value) if isinstance(value, (list, tuple)) else value or str(value)
        return None if above and None in parts else tuple(parts)

    def _fact(self, value: ir.Value) -> int:
        """The number of the facts about a value on which readings depend: its type, its elements or sizes where they
        are few, and the operator that computes it."""
        view, node = self.views[value], value.producer()
        if isinstance(view.native, OnnxLeaf) and view.op != INPUT:
            is_small = not isinstance(view.attrs, UnreadWeight)
            number = _number(view.type, self.constant(value).tobytes() if is_small else False)
        else:
            number = _fact_of_call(view.type, node) or _number(
                view.type, node and (node.op_type, node.domain), self.constant(value) is None, self.sizes(value)
            )
        self._facts[value] = number
        return number

    def is_value(self, operand: Any, native: Any) -> bool:
        return operand in self.views

    def _group(self, node: ir.Node) -> tuple[Subgraph, Mapping[str, Any]] | None:
        """The group that a node calls, and its attributes; ``None`` if it calls none."""
        function = self.model.functions.get(node.op_identifier())
        label = groups.label_of(function)
        types = [self.type_of(value) for value in node.inputs if value is not None]
        if function is None or label is None or len(types) != len(function.inputs):
            return None
        return Subgraph(label[0], lambda: self._body(function, types)), label[1]

    def _body(self, function: ir.Function, types: Sequence[Type | None]) -> Graph:
        """The graph that a function computes of operands of these types."""
        model = groups.called(self.model, function, types, self.types.names.get)
        return OnnxLoader(model, self.declared).load()

    def _opaque(self, native: Any, node: ir.Node, group: tuple[Subgraph, Mapping[str, Any]] | None, key: Any) -> None:
        """Add the one node of a call that stays as it is, be it that of a group, and note it under its key if the model
        tells its type, and no size of that is a symbol of its own."""
        op, attrs = (opaque.target_of(node), opaque.attributes(node)) if group is None else group
        inputs = tuple([value for value in node.inputs if value is not None])
        extra = opaque.captured(list(opaque.bodies(node)))
        type: Type | None = self._native_type(node.outputs[0])
        if native is node:
            type = TupleType(tuple(map(self._native_type, node.outputs)))
        view = Node(
            op, tuple([self.views[value] for value in inputs]), attrs, type,
            name=native.name or node.op_type.lower(), native=Single(native, (*inputs, *extra)),
            effect=opaque.effect_of(node), deps=tuple([self.views[value] for value in extra]),
        )  # fmt: skip
        self.add(native, view)
        is_alike = native is not node and group is None and view.effect is None and self._told(native) is not None
        if is_alike and not meaning.has_symbols(type):
            self._note(key, node, recorded([view], [inputs], "", inputs))

    def _field(self, node: ir.Node, place: int) -> None:
        """Add one of several results of a node."""
        whole, value = self.views[node], node.outputs[place]
        meant = whole.type.fields[place] if isinstance(whole.type, TupleType) else None
        type = self._native_type(value) if meant is None else meant
        if meant is not None and (told := self.types.of(value)) is not None:
            type = refined(told, meant)
        view = Node(GETITEM, (whole,), {"index": place}, type, name=value.name or "", native=Single(value, (node,)))
        self.add(value, view)

    # ------------------------------------------------------------ what readings ask

    def type_of(self, value: Any) -> Type | None:
        """The type of a value: that of its node in the view if there is one."""
        view = self.views.get(value)
        return view.type if view is not None else self._native_type(value)

    def constant(self, value: ir.Value | None) -> Any:
        """The elements of a value that is written in the model, as a numpy array; ``None`` for any other value."""
        if value is None:
            return None
        if value not in self._arrays:
            tensor = _tensor_of(value) if value.name in self.weights or is_constant(value.producer()) else None
            self._arrays[value] = self._folded(value) if tensor is None else tensor.numpy()
        return self._arrays[value]

    def _folded(self, value: ir.Value) -> Any:
        """The elements of a few integers that are computed from others which are written in the model."""
        view, node = self.views.get(value), value.producer()
        if view is None or node is None or not isinstance(view.op, str) or view.op not in TABLE:
            return None
        if not (isinstance(view.type, TensorType) and view.type.dtype in ("int64", "int32") and view.type.ndim <= 1):
            return None
        if not node.inputs or any(operand.op not in (PARAM, CONST) for operand in view.operands):
            return None
        if any(getattr(operand.attrs["value"], "nbytes", 0) > FEW for operand in view.operands):
            return None
        if any(map(meaning.has_symbols, view.attrs.values())):
            return None
        try:
            return meaning.evaluate(TABLE[view.op], [part.attrs["value"] for part in view.operands], view.attrs).numpy()
        except (IndexError, RuntimeError):
            return None  # the model fails there when it runs

    def sizes(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The integers of a shape that is written in the model, or computed from the sizes of tensors; ``None`` if
        they are not known."""
        array = self.constant(value)
        if array is not None:
            return tuple(map(int, array.reshape(-1))) if array.dtype.kind == "i" and array.ndim < 2 else None
        if value not in self._sizes and value is not None:
            self._sizes[value] = None  # for a cycle
            self._sizes[value] = sizes_of(value.producer(), self)
        return self._sizes.get(value) if value is not None else None

    @cached_property
    def _declared(self) -> Mapping[str, tuple[Any, Any]]:
        """The types that ONNX infers, where the model does not tell them."""
        return declared_types(self.model)

    def _native_type(self, value: ir.Value) -> Type | None:
        """The type that the model declares, or that ONNX infers."""
        if value not in self._types:
            known = self._told(value)
            if known is None and (value.type is None or value.shape is None):
                known = self.types.tensor(*self._declared.get(value.name or "", (None, None)))
            self._types[value] = known
        return self._types[value]

    def _told(self, value: ir.Value) -> Type | None:
        """The type of a shape, which follows, and that which the model declares for any other value."""
        node = value.producer()
        sizes = self.sizes(value) if node is not None and node.op_type == "Shape" and not node.domain else None
        return self.types.of(value) if sizes is None else TensorType((len(sizes),), "int64")


def _tensor_of(value: ir.Value) -> Any:
    """The tensor that a value is in the model; ``None`` if it is none, or none that can be read."""
    try:
        tensor = const_tensor(value)
    except (TypeError, ValueError):
        return None
    return None if tensor is None or tensor.dtype not in DTYPES else tensor


def _operands(inputs: Sequence[Any], through: Sequence[Any]) -> list[ir.Value]:
    """The operands of the nodes that compute some values, and those of a node that is read together with them."""
    lists = [*[value.producer().inputs for value in through], inputs]
    return [value for each in lists for value in each if value is not None]


def _number(*facts: Any) -> int:
    """The number of some facts."""
    if len(FACTS) >= 8 * MOST:
        FACTS.clear()
    return FACTS.setdefault(facts, next(_NUMBERS))


def _fact_of_call(type: Type | None, node: ir.Node | None) -> int:
    """The number of the facts about a value that a node computes, or an input; 0 if it may be a shape."""
    return 0 if _may_be_shape(type) else _number(type, node and (node.op_type, node.domain))


def _may_be_shape(type: Type | None) -> bool:
    """True for a list of integers, or one integer, and for what is no tensor."""
    return not isinstance(type, TensorType) or (type.ndim < 2 and type.dtype in ("int32", "int64"))


__all__ = [
    "INITIALIZER", "PARTS", "OnnxLeaf", "OnnxLoader", "is_alias", "is_constant", "node_of", "targets", "weights_of",
]  # fmt: skip
