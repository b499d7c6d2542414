"""Writes new native calls: their names, arguments and metadata."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.graph import _illegal_names

from gsl.errors import FrontEndError, nearest
from gsl.front.core.handle import handle_of, is_literal, origins
from gsl.front.core.store import unique
from gsl.front.fx import spellings
from gsl.front.fx.builder import GraphBuilder
from gsl.front.fx.devices import Devices, check_same, is_created, is_placed
from gsl.front.fx.fakes import Fakes
from gsl.front.fx.groups import check_group, write_group
from gsl.front.fx.handle import RULE, native_index, native_of
from gsl.front.fx.opaque import native_call
from gsl.front.fx.parameters import FxParameterStore, from_numpy
from gsl.front.fx.sizes import ComputedSizes
from gsl.front.fx.spellings import effects
from gsl.front.fx.spellings.lower import lowered
from gsl.front.fx.spellings.table import Dialect, Native
from gsl.front.fx.values import is_elsewhere, is_scalar, keeps_elements, type_of_value
from gsl.graph import GETITEM, TUPLE, Node, Op, SymDim, TensorType, TupleType, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.match import masks
from gsl.spec import TABLE, OperatorName

_MODULES: Final = "nn_module_stack"
INHERITED: Final = ("stack_trace", _MODULES, "source_fn_stack", "torch_fn", "seq_nr")
"""The metadata that a new native node takes over from the one that it replaces."""

_LAYOUT_CHOSEN: Final = frozenset((
    "nn.attention", "nn.conv1d", "nn.conv2d", "nn.conv3d",
    "nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose",
))  # fmt: skip
"""Operators whose kernels choose the layout of their results: the one that they find fast on a device."""

_READS: Final = ("placeholder", "get_attr")
_ILLEGAL: Final = re.compile(r"\W+")


class FxWriter:
    """The new native graph, and how nodes get into it."""

    def __init__(
        self,
        value: Callable[[Node], Any],
        builder: GraphBuilder,
        fakes: Fakes,
        parameters: FxParameterStore,
        dialect: Dialect,
        devices: Devices,
    ) -> None:
        self.value = value
        self.builder = builder
        self.fakes = fakes
        self.parameters = parameters
        self.dialect = dialect
        self.devices = devices
        self.sizes = ComputedSizes(self.fakes, self.create, dialect)
        self._used: set[str] = set()
        """The names of new nodes. The name of an old node is only taken by a node that has the same value."""
        self._made: list[fx.Node] = []
        """The new nodes, in the order of the graph."""
        self._raised: dict[fx.Node, fx.Node] = {}
        """The masks with numbers that are too low, each with the one that is made of it."""

    def close(self) -> None:
        """Keep the modules around calls whole, and forget the data for writing: it refers to this object, which would
        wait for the garbage collector."""
        keep_whole(self._made)
        del self.value, self.sizes

    def inner(self, value: Callable[[Node], Any], parameters: FxParameterStore) -> FxWriter:
        """A writer of a graph of its own within this one."""
        return FxWriter(value, GraphBuilder(), self.fakes.inner(), parameters, self.dialect, self.devices)

    # ------------------------------------------------------------ what is kept

    def keep(self, node: fx.Node, argument: Callable[[fx.Node], Any]) -> fx.Node:
        """The counterpart of an old native node, with other arguments and everything else as it was."""
        moved = changed = False

        def replace(old: fx.Node) -> Any:
            nonlocal moved, changed
            new = argument(old)
            if new is not old:
                changed = True
            elif new not in self.fakes.moved:
                return new
            if isinstance(new, fx.Node):
                check_same(node, *self.fakes.values_of(old, new))
            moved = moved or self.fakes.have_moved(old, new)
            return new

        args = fx.node.map_arg(node.args, replace)
        kwargs = fx.node.map_arg(node.kwargs, replace) if node.kwargs else node.kwargs
        if not changed:
            args, kwargs = node.args, node.kwargs
        target: Any = node.target
        if moved and keeps_elements(node, self.fakes.before):
            target, args, kwargs = torch.ops.aten.clone.default, args[:1], {}
        elif moved:
            target = self._for_any_strides(node)
        if moved and (places := effects.DENSE.get(target)):
            sparse = {arg for arg in args if isinstance(arg, fx.Node) and not self.fakes.is_dense(arg)}
            args = tuple([
                self._dense(arg) if place in places and arg in sparse else arg for place, arg in enumerate(args)
            ])  # fmt: skip
        if moved and (count := effects.ROWS.get(target)):
            args = (*[arg if self.fakes.has_rows(arg) else self._dense(arg) for arg in args[:count]], *args[count:])
        new = self.builder.keep(node, target, args, kwargs)
        self._kept(node, new)
        if moved and node.op != "output":
            self.fakes.move(new, self.builder.note)
        return new

    def keep_as_it_is(self, node: fx.Node, new: Mapping[fx.Node, fx.Node]) -> fx.Node | None:
        """The counterpart of an old native node whose arguments are all unchanged; ``new`` has their counterparts.

        ``None`` if some are not in the graph, or lie otherwise in memory.
        """
        args, kwargs, changed, moved = node.args, node.kwargs, False, self.fakes.moved
        for operand in node._input_nodes:
            found = new.get(operand)
            if found is None or found in moved:
                return None
            changed = changed or found is not operand
        if changed:
            replace: Any = new.__getitem__
            args, kwargs = fx.node.map_arg(args, replace), fx.node.map_arg(kwargs, replace)
        result = self.builder.keep(node, node.target, args, kwargs)
        self._kept(node, result)
        return result

    def fetch(self, node: fx.Node) -> fx.Node:
        """The read of a weight, which has no arguments, from where it stands."""
        new = self.builder.fetch(node)
        self._kept(node, new)
        return new

    def _kept(self, old: fx.Node, new: fx.Node) -> None:
        if new is not old:
            self.fakes.carry(old, new)
        self.sizes.note((new,))

    @staticmethod
    def _for_any_strides(node: fx.Node) -> Any:
        """The target of a call whose operand may lie otherwise in memory than before: a view may need a copy then."""
        if effects.is_by_strides(node):
            raise FrontEndError(
                f"{node.format_node()}: reads its operand by strides, which are not the same after the rewrite"
            )
        return effects.RESHAPES.get(node.target, node.target)

    def _dense(self, operand: Any) -> fx.Node:
        """A dense copy of an operand of a kept call."""
        layout = {"memory_format": torch.contiguous_format}
        return self._beside(torch.ops.aten.clone.default, (operand,), layout, self._type(operand))

    def _raise(self, mask: fx.Node) -> fx.Node:
        """A mask without numbers that are too low, by operators that remain when all others are decomposed."""
        aten, type = torch.ops.aten, self._type(mask)
        truth = None if type is None else TensorType(type.shape, "bool")
        hidden = self._beside(aten.eq.Scalar, (mask, -math.inf), {}, truth)
        low = self._beside(aten.clamp.default, (mask, masks.LOWEST), {}, type)
        return self._beside(aten.where.self, (hidden, mask, low), {}, type)

    def _type(self, operand: Any) -> TensorType | None:
        type = self.fakes.values.type_of(self.fakes.values.value(operand))
        return type if isinstance(type, TensorType) else None

    def _beside(self, target: Any, args: Any, kwargs: dict[str, Any], type: TensorType | None) -> fx.Node:
        """A new native node of a known type that stands for none of the view."""
        new = self.add("call_function", target, args, kwargs, self.name("", "call_function", target))
        self.fakes.record(new, type)
        return new

    # ------------------------------------------------------------ new nodes

    def write(self, node: Node, joined: Node | None) -> Any:
        """The native value of a call of the view; with ``joined``, of that call and the bias that ``node`` adds."""
        if isinstance(node.op, Subgraph):
            return write_group(self, node)
        try:
            if node.op.__class__ is OpOverload and not node.attrs:
                value = self._call(node)
            else:
                native = self._module_call(node) if isinstance(node.op, type) else self._native(node, joined)
                value = self._emit(native, node, {}, outermost=True)
        except FrontEndError:
            raise
        except Exception as error:
            raise FrontEndError(f"{node.name or op_name(node.op)}: can't be written in torch: {error}") from error
        if isinstance(value, fx.Node):
            self.sizes.note((value,))
        return value

    def _call(self, node: Node) -> fx.Node:
        """The call of an operator of torch that takes nothing but its operands."""
        args = tuple([self.value(operand) for operand in node.operands])
        new = self.create("call_function", node.op, args, {}, node.name, node)
        self.fakes.record(new, node.type, replaced(node), chosen=chooses_layout(node))
        return new

    def _native(self, node: Node, joined: Node | None) -> Any:
        operands = tuple([stand_in(operand) for operand in node.operands])
        if joined is not None:
            if joined.op == "matmul":
                target = torch.ops.aten.addmm.default if self.dialect == "aten" else torch.addmm
                return Native(target, (operands[1], *map(stand_in, joined.operands)))
            operands = (*map(stand_in, joined.operands), operands[1])
            return spellings.write_biased(str(joined.op), joined.attrs, operands, type_of, self.dialect)
        if node.op == GETITEM:
            return Native(operator.getitem, (operands[0], native_index(node.operands[0], node.attrs["index"])))
        native = spelled(node.op, operands, node.attrs, self.dialect)
        return self._placed(native, node) if isinstance(node.op, str) and is_created(node) else native

    def _placed(self, native: Native, node: Node) -> Native:
        """A call that creates a tensor, on the device where it belongs."""
        device = self.devices.of(node)
        if device is None or (self.dialect == "torch" and device == torch.get_default_device()):
            return native
        return Native(native.target, native.args, {**native.kwargs, "device": device})

    def _emit(self, native: Any, node: Node, made: dict[Native, fx.Node], *, outermost: bool = False) -> Any:
        """Create the native nodes of a tree of native calls, and all nodes that its arguments need.

        ``made`` has what was created for the tree so far: a call that stands in it twice is one node.
        """
        match native:
            case Native() if made and native in made:
                return made[native]
            case Native():
                value = self.value
                args = tuple(
                    [value(arg) if arg.__class__ is Node else self._emit(arg, node, made) for arg in native.args]
                )
                kwargs = {name: self._emit(arg, node, made) for name, arg in native.kwargs.items()}
                if outermost and node.op == "nn.attention":
                    args = (*args[:3], *map(partial(self._mask, node), args[3:]))
                kind = "call_method" if isinstance(native.target, str) else "call_function"
                name = node.name if outermost else ""
                new = self.create(kind, native.target, args, kwargs, name, node)
                before = replaced(node) if outermost else ()
                self.fakes.record(new, node.type if outermost else None, before, chosen=chooses_layout(node))
                made[native] = new
                return new
            case Node():
                return self.value(native)
            case SymDim():
                return self.sizes.write(native, node)
            case list():
                return [self._emit(item, node, made) for item in native]
            case torch.Size() | tuple():
                return tuple([self._emit(item, node, made) for item in native])
            case dict():
                return {key: self._emit(item, node, made) for key, item in native.items()}
            case slice():
                return slice(*(self._emit(part, node, made) for part in (native.start, native.stop, native.step)))
        return native

    def _mask(self, call: Node, mask: Any) -> Any:
        """A mask as kernels on an accelerator want it: without numbers that they take for minus infinity, and row by
        row. They take no other one, and torch computes step by step without them, which takes ten times as long."""
        if not (isinstance(mask, fx.Node) and is_elsewhere(self.fakes.values.value(mask))):
            return mask
        if masks.is_too_low(call.operands[3]):
            if mask not in self._raised:
                self._raised[mask] = self._raise(mask)
            mask = self._raised[mask]
        return mask if self.fakes.has_rows(mask) else self._dense(mask)

    def _module_call(self, node: Node) -> Any:
        """A call of a new submodule: the one given as ``module``, or one built from the attributes."""
        module = node.attrs.get("module")
        if module is None:
            module = node.op(**node.attrs).train(self.parameters.training)  # type: ignore[operator]
            if module.state_dict():
                raise FrontEndError(
                    f"{node.name}: a new {type(module).__name__} would have weights that nobody set; "
                    f"give the module itself as the attribute module="
                )
        path = self.parameters.add_module(module, _identifier(node.name or type(module).__name__.lower()))
        args = tuple([self.value(operand) for operand in node.operands])
        new = self.create("call_module", path, args, {}, node.name, node)
        self.fakes.record(new, node.type)
        return new

    def tensor(self, node: Node) -> Any:
        """The tensor of a new weight or literal, where it belongs."""
        value = from_numpy(node.attrs["value"])
        return value if is_placed(node) else self.devices.place(value, node)

    def create(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str, node: Node
    ) -> fx.Node:
        """A new native node at the end of the graph; ``node`` is the view node for which it is made."""
        handle = handle_of(node)
        own = handle is not None and handle.is_root and handle.reading.native.name == name and name not in self._used
        if own:
            self._used.add(name)
        new = self.add(kind, target, args, dict(kwargs), name if own else self.name(name, kind, target))
        new.meta.update(inherited(node))
        self._made.append(new)
        return new

    def add(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> fx.Node:
        """A new native node that stands for none of the view."""
        new = self.builder.create(kind, target, args, kwargs, name)
        self.builder.note(lambda: self.fakes.values.forget((new,)))
        return new

    def name(self, wanted: str, kind: str = "", target: Any = None) -> str:
        """A name for a new native node that no other has or will have, and that torch leaves as it is."""
        base = _identifier(wanted or self.builder.graph._target_to_str(target if kind else "weight"))
        name = unique(base, self.is_taken)
        self._used.add(name)
        return name

    def is_taken(self, name: str) -> bool:
        """True for a name that no new native node may have."""
        return name in self.builder.names or name in self._used or _is_illegal(name)


def spelled(op: Any, operands: tuple[Any, ...], attrs: Mapping[str, Any], dialect: Dialect) -> Any:
    """The native call of an operator on the stand-ins for its operands. FrontEndError or ValueError if there is
    none."""
    if isinstance(op, str):
        if op not in TABLE:
            raise FrontEndError(
                f"{op!r} is not an operator of the vocabulary, so it can't be written in torch; {nearest(op, TABLE)}"
            )
        if isinstance(op, OperatorName):
            return op.spec.native.written(op.spec, operands, attrs, tuple(map(type_of, operands)))
        return spellings.write(op, attrs, operands, type_of, dialect)
    call = native_call(op, operands, attrs)
    return lowered(call) if dialect == "aten" else call


def _check_spelled(dialect: Dialect, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in a graph of that dialect."""
    if isinstance(op, Subgraph):
        check_group(op, operands, attrs, dialect)
        return
    if not isinstance(op, type):
        spelled(op, tuple(map(stand_in, operands)), attrs, dialect)
    if not isinstance(op, str) and _writes(op, operands, attrs):
        raise FrontEndError("it writes to its operands, which others may read: call the one that returns a new tensor")


def _writes(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> bool:
    """True for the call of a function or a module that changes one of its operands."""
    if isinstance(op, type):
        return getattr(attrs.get("module"), "inplace", attrs.get("inplace")) is True
    is_mutable = isinstance(op, OpOverload) and op._schema.is_mutable
    return is_mutable or bool(effects.mutated(op, operands, attrs))


def in_functions(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in a graph of functions, methods and modules."""
    _check_spelled("torch", op, operands, attrs)


def in_aten(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in a graph of operators of aten."""
    _check_spelled("aten", op, operands, attrs)


def in_exports(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in an exported program."""
    if isinstance(op, type):
        raise FrontEndError(
            f"an exported program can't call the module {op_name(op)}; rewrite the GraphModule of .module() instead, "
            "or use functions"
        )
    in_aten(op, operands, attrs)


def _is_illegal(name: str) -> bool:
    """True for a name that no value may have: those that torch knows, and that of the module in a graph's code."""
    return name in _illegal_names or name == "self"


def _identifier(text: str) -> str:
    if text.isascii() and text.isidentifier():
        return text
    text = _ILLEGAL.sub("_", text)
    return f"_{text}" if text[:1].isdigit() else text


def inherited(node: Node) -> dict[str, Any]:
    """The metadata of a new native node: source locations of the nodes that it replaces, and the rule that made it."""
    if node.origin is None:
        native = native_of(node) if handle_of(node) is not None else None
        return {} if native is None else {key: native.meta[key] for key in INHERITED if key in native.meta}
    names: dict[str, None] = {}
    calls: list[dict[str, Any]] = []
    replaced = node.origin.replaced
    if [old for old in replaced if old.origin is not None]:  # some were new themselves
        replaced = tuple(origins(node))[::-1]
    for native in map(native_of, replaced):
        if native is not None:
            names[native.name] = None
            if native.op not in _READS:
                calls.append(native.meta)
    before = calls[-1] if calls else {}
    meta: dict[str, Any] = {key: before[key] for key in INHERITED if key in before}
    if _MODULES in meta and len(calls) > 1:
        meta[_MODULES] = _common([call.get(_MODULES, {}) for call in calls])
    meta[RULE] = {"rule": node.origin.rule, "from": list(names)}
    return meta


def _common(stacks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The modules around all of some calls, of the modules around each, outermost first."""
    last = stacks[-1]
    names = set(last).intersection(*stacks)  # those of modules, or of their calls
    return last if len(names) == len(last) else {name: last[name] for name in last if name in names}


def keep_whole(made: Sequence[fx.Node]) -> None:
    """Let new calls, given in the order of the graph, stand within the modules that go on behind them.

    ``torch.export.unflatten`` makes of the calls of a module one again, for which they must follow each other.
    """
    for run in _runs(made):
        before: Mapping[str, Any] = next((node.meta[_MODULES] for node in _beside(run[0], "prev")), {})
        after: Mapping[str, Any] = next((node.meta[_MODULES] for node in _beside(run[-1], "next")), {})
        stacks = [node.meta[_MODULES] for node in run]
        last = {name: place for place, stack in enumerate((*stacks, after)) for name in stack}
        for place, (node, stack) in enumerate(zip(run, stacks)):
            going_on = _going_on(before, last, place)
            if [*stack][: len(going_on)] != [*going_on]:
                node.meta[_MODULES] = stack = going_on
            before = stack


def _going_on(stack: Mapping[str, Any], last: Mapping[str, int], place: int) -> dict[str, Any]:
    """The outermost modules of a stack that have calls behind a place."""
    return dict(takewhile(lambda module: last.get(module[0], -1) > place, stack.items()))


def _runs(made: Sequence[fx.Node]) -> Iterator[list[fx.Node]]:
    """The nodes of which modules are known, as lists of those between which there is no other one."""
    run: list[fx.Node] = []
    for node in made:
        if _MODULES in node.meta:
            if run and next(_beside(node, "prev"), None) is not run[-1]:
                yield run
                run = []
            run.append(node)
    if run:
        yield run


def _beside(node: fx.Node, side: Literal["prev", "next"]) -> Iterator[fx.Node]:
    """The nodes of which modules are known on one side of a node, the nearest first."""
    while (node := getattr(node, side)).op != "root":
        if _MODULES in node.meta:
            yield node


def chooses_layout(node: Node) -> bool:
    """True if the layout of a new call's result is not known: its kernel decides, and no such call stood there
    before.

    An operator of the user's tells its layout by its kernel for fake tensors, as torch demands it.
    """
    chosen = node.op.namespace == "gsl" if isinstance(node.op, OpOverload) else node.op in _LAYOUT_CHOSEN
    return chosen and all(old.op != node.op for old in origins(node))


def replaced(node: Node) -> Iterator[fx.Node]:
    """The native calls instead of which a rewrite made a node, first those that most likely had the same value."""
    if node.origin is None:
        return
    for user in node.users:
        for old, new in (user.redirects or {}).items():
            native = native_of(old) if new is node else None
            if native is not None and native.op not in _READS:
                yield native
    for old in reversed(node.origin.replaced):
        native = native_of(old)
        if native is not None and native.op not in _READS:
            yield native


def stand_in(node: Node) -> Any:
    """The stand-in for an operand when a call is spelled: the node, a Python number, or a tuple of those."""
    if is_literal(node):
        return node.attrs["value"]
    if node.op == TUPLE:
        return tuple([stand_in(operand) for operand in node.operands])
    return node


def type_of(operand: Any) -> Type | None:
    """The type of the stand-in for an operand."""
    match operand:
        case Node():
            return operand.type
        case tuple() | list():
            return TupleType(tuple([type_of(item) for item in operand]))
    return type_of_value(operand) if is_scalar(operand) else None
