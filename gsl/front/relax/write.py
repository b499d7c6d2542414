"""Writes new expressions of Relax: calls one by one, with types, names and source locations."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final

from tvm import ir, relax
from tvm.relax.expr import _update_type

from gsl.errors import FrontEndError
from gsl.front.core.handle import is_literal, origins
from gsl.front.core.opaque import as_group
from gsl.front.core.store import FreeNames
from gsl.front.relax import spellings
from gsl.front.relax.blocks import Bind
from gsl.front.relax.function import VARIABLES, call, items
from gsl.front.relax.groups import Outliner, Write
from gsl.front.relax.load import Loaded
from gsl.front.relax.opaque import Caller
from gsl.front.tvm import operands_first
from gsl.graph import CONST, GETITEM, Node, TensorType, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import TABLE, OperatorName

# ---------------------------------------------------------------- recipes


@dataclass(frozen=True, slots=True, eq=False)
class WrittenPart:
    """One call that is written."""

    op: Any
    args: tuple[Any, ...]
    """Operands by their positions among the tensors, earlier parts by the complements of theirs; or an expression
    without variables."""
    attrs: Any
    ty_args: Any
    type: Any
    name: str
    """The operator's own name."""
    is_plain: bool
    """True if the operands are the tensors, in their order."""


WriteRecipe = tuple[WrittenPart, ...]
"""Calls in order, each with the types that Relax gave it; the last one has the value."""


def nearby_key(node: Node) -> tuple[Any, ...] | None:
    """A key for calls that rules made in the same way: such calls share their attributes and types.

    Other calls may be written alike as well. It holds as long as none of these objects goes.
    """
    operands = node.operands
    if node.type is None:
        return None
    if len(operands) == 1:  # as below, for those of which there are most
        (operand,) = operands
        if operand.op == CONST or type(operand.type) is not TensorType:
            return None
        return (node.op, id(node.attrs), id(node.type), id(operand.type))
    if len(set(operands)) < len(operands):
        return None
    key: list[Any] = [node.op, id(node.attrs), id(node.type)]
    for operand in operands:
        if operand.op == CONST or type(operand.type) is not TensorType:
            return None
        key.append(id(operand.type))
    return tuple(key)


def key_of(node: Node) -> bytes | None:
    """A key of everything that the writing of a call depends on besides its operands; ``None`` where there is no such
    key.

    Sizes are part of it, so they have to be numbers.
    """
    if node.op not in TABLE or len(set(node.operands)) != len(node.operands) or type(node.type) is not TensorType:
        return None
    described: list[Any] = [node.op, *node.attrs.items(), node.type.shape, node.type.dtype]
    for operand in node.operands:
        if is_literal(operand):
            described.append(operand.attrs["value"])
        elif type(operand.type) is TensorType:
            described += (operand.type.shape, operand.type.dtype)
        else:
            return None
    try:
        # It takes plain values alone, and tells True, 1 and 1.0 apart.
        return marshal.dumps(described, 2)
    except ValueError:
        return None


def recipe(tensors: Sequence[Any], calls: Sequence[tuple[Any, Any]]) -> WriteRecipe | None:
    """The recipe of calls that were written, each with the variable that has it (the last one has none).

    ``None`` where a part is not a call of variables and constants.
    """
    places = {tensor.__chandle__(): place for place, tensor in enumerate(tensors)}
    if len(places) != len(tensors):
        return None
    parts: list[WrittenPart] = []
    for var, expr in calls:
        if type(expr) is not ir.Call or type(expr.op) not in (ir.Op, ir.GlobalVar):
            return None
        args: list[Any] = []
        for arg in items(expr.args):
            place = places.get(arg.__chandle__())
            if place is None and relax.analysis.free_vars(arg):
                return None
            args.append(arg if place is None else place)
        name = _own_name(expr)
        is_plain = [arg if type(arg) is int else None for arg in args] == list(range(len(tensors)))
        parts.append(WrittenPart(expr.op, tuple(args), expr.attrs, expr.ty_args, expr.ty, name, is_plain))
        if var is not None:
            places[var.__chandle__()] = ~(len(parts) - 1)
    return tuple(parts)


def follow(
    parts: WriteRecipe, tensors: Sequence[Any], name: str, span: Any,
    make: Callable[[str, Any], Any], emit: Bind,
) -> Any:  # fmt: skip
    """The expression of a call by a recipe: all parts but the last are bound to variables."""
    if len(parts) == 1:
        part = parts[0]
        args = tensors if part.is_plain else [tensors[arg] if type(arg) is int else arg for arg in part.args]
        return call(part.type, part.op, args, part.attrs, part.ty_args, span)
    made: list[Any] = []
    expr = None
    for number, part in enumerate(parts):
        args = [arg if type(arg) is not int else tensors[arg] if arg >= 0 else made[~arg] for arg in part.args]
        expr = call(part.type, part.op, args, part.attrs, part.ty_args, span)
        if number < len(parts) - 1:
            made.append(make(f"{name}_{part.name}", part.type))
            emit(made[-1], expr)
    return expr


# ---------------------------------------------------------------- calls


class RelaxCallWriter:
    """Writes the calls of a view; ``value`` gives the expression of a view node."""

    def __init__(
        self, loaded: Loaded, caller: Caller, value: Callable[[Node], Any], outliner: Outliner,
        around: RelaxCallWriter | None = None,
    ) -> None:  # fmt: skip
        self.loaded = loaded
        self.scope = loaded.scope
        self.caller = caller
        self.value = value
        self.outliner = outliner
        self._recipes: dict[bytes, WriteRecipe | None] = {} if around is None else around._recipes
        self._nearby: dict[Any, WriteRecipe] = {}
        """The recipes for the calls of one view, by a key that is quicker to make than the whole one."""
        self.fresh: list[Any] = []
        """The calls that were written without a recipe: all others have the types of one of them, or of one in a
        function that these call."""
        self.names: FreeNames = FreeNames(loaded.function.all_names) if around is None else around.names
        """The names of new variables."""

    def close(self) -> None:
        """Forget the parts that refer to this object, which would wait for the garbage collector."""
        del self.value, self.outliner

    def known(self, node: Node) -> WriteRecipe | None:
        """The recipe of a call of the view, if one that is written alike has been written."""
        nearby = self._nearby_key(node)
        known = self._nearby.get(nearby)
        if known is None:
            known = self._group(node) if type(node.op) is Subgraph else self._call(key_of(node))
            if known is not None and nearby is not None:
                self._nearby[nearby] = known
        return known

    def _call(self, key: bytes | None) -> WriteRecipe | None:
        known = None if key is None else self._recipes.get(key)
        if known is None and key is not None and self.scope.is_exact:
            known = self.scope.shared.recipes.get(key)
        return known

    def _group(self, node: Node) -> WriteRecipe | None:
        """The recipe of a call of a group whose function was written before."""
        operands = list(map(self.value, node.operands))
        known = self.outliner.known(node, operands)
        if known is None:
            return None
        var, result = known
        return (WrittenPart(var, tuple(range(len(operands))), None, [], result, op_name(node.op), True),)

    def _nearby_key(self, node: Node) -> tuple[Any, ...] | None:
        """The same for a call of a group, unless a constant is part of its function."""
        if type(node.op) is Subgraph:
            for operand in node.operands:
                if type(self.value(operand)) not in VARIABLES:
                    return None
        return nearby_key(node)

    def write(
        self, node: Node, make: Callable[[str, Any], Any], emit: Bind
    ) -> tuple[Any, WrittenPart | None]:
        """The expression of a call of the view, in pieces: ``make`` makes a variable of a name and a type; and how it
        was written, if others can be written alike.

        The expression is a call without calls among its arguments, or a variable.
        """
        known = self.known(node)
        if known is None:
            expr, known = self._new(node, make, emit)
            return expr, None if known is None else known[-1]
        span = span_of(node, self.loaded) if self.loaded.function.has_spans else None
        return follow(known, self.tensors(node), node.name, span, make, emit), known[-1]

    def _new(
        self, node: Node, make: Callable[[str, Any], Any], emit: Bind
    ) -> tuple[Any, WriteRecipe | None]:
        """The expression of a call, and its recipe, which is noted."""
        written: list[tuple[Any, Any]] = []

        def note(var: Any, expr: Any) -> None:
            written.append((var, expr))
            emit(var, expr)

        try:
            found = self._flat(self._native(node), node, make, note)
            self.fresh += [*[expr for _, expr in written], found]
            key, is_group = key_of(node), type(node.op) is Subgraph
            made = recipe(self.tensors(node), [*written, (None, found)]) if is_group or key is not None else None
            if key is not None:
                self._recipes[key] = made
            nearby = self._nearby_key(node) if made is not None else None
            if nearby is not None and made is not None:
                self._nearby[nearby] = made
            return found, made
        except FrontEndError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise FrontEndError(f"{node.name or op_name(node.op)}: can't be written in Relax: {reason}") from error

    def remember(self) -> None:
        """Let other functions use the recipes, as TVM has checked what was written by them."""
        self.scope.shared.recipes.update({
            key: parts for key, parts in self._recipes.items()
            if parts is not None and all(type(part.op) is ir.Op for part in parts)
        })

    def _native(self, node: Node) -> Any:
        if node.op == GETITEM:
            return relax.TupleGetItem(self.value(node.operands[0]), int(node.attrs["index"]))
        if isinstance(node.op, OperatorName):
            node = as_group(node)
        if isinstance(node.op, Subgraph):
            return self.outliner.call(node, [self.value(operand) for operand in node.operands], self._inside)
        operands = tuple(map(self.stand_in, node.operands))
        if isinstance(node.op, str):
            if node.op not in TABLE:
                raise FrontEndError(f"{node.name}: {node.op!r} is not an operator of the vocabulary")
            return spellings.write(node.op, node.attrs, operands, self.scope)
        tensors = [relax.Tuple(list(item)) if isinstance(item, tuple) else item for item in operands]
        return self.caller.call(node.op, tensors, node.attrs)

    def tensors(self, node: Node) -> list[Any]:
        """The expressions of the operands that are no numbers."""
        value = self.value
        return [value(operand) for operand in node.operands if operand.op != CONST or not is_literal(operand)]

    def _inside(self, value: Callable[[Node], Any]) -> Write:
        """A function that writes the calls of a group; ``value`` gives the expression of a node of it."""
        return RelaxCallWriter(self.loaded, self.caller, value, self.outliner, self).write

    def stand_in(self, node: Node) -> Any:
        """The stand-in for an operand when a call is spelled: an expression, a number, or a tuple of expressions."""
        if is_literal(node):
            return node.attrs["value"]
        value = self.value(node)
        return tuple(value.fields) if isinstance(value, relax.Tuple) else value

    def _flat(self, expr: Any, node: Node, make: Callable[[str, Any], Any], emit: Bind) -> Any:
        """Bind every call within an expression to a variable, operands first; the outermost is left."""
        done: dict[Any, Any] = {}
        span = span_of(node, self.loaded)
        *parts, outermost = operands_first([expr], _parts, _address)
        for part in parts:
            done[part] = flat = self._typed(_rebuilt(part, done, span))
            if isinstance(flat, (relax.Call, relax.TupleGetItem)):
                done[part] = make(f"{node.name}_{_own_name(flat)}", flat.ty)
                emit(done[part], flat)
        return self._typed(_rebuilt(outermost, done, span))

    def _typed(self, expr: Any) -> Any:
        if isinstance(expr, (relax.Call, relax.TupleGetItem)) and expr.ty.is_missing():
            return self.scope.builder.normalize(expr)
        return expr


_address: Final = methodcaller("__chandle__")


def _parts(expr: Any) -> Sequence[Any]:
    match expr:
        case relax.Call():
            return items(expr.args)
        case relax.Tuple():
            return items(expr.fields)
        case relax.TupleGetItem():
            return (expr.tuple_value,)
    return ()


def _rebuilt(expr: Any, done: dict[Any, Any], span: Any) -> Any:
    """An expression with variables for the calls among its parts."""
    match expr:
        case relax.Call():
            new = ir.Call(expr.op, [done[arg] for arg in expr.args], expr.attrs, expr.ty_args, span)
        case relax.TupleGetItem():
            new = relax.TupleGetItem(done[expr.tuple_value], expr.index, span)
        case relax.Tuple():
            return relax.Tuple([done[field] for field in expr.fields], span)
        case _:
            return expr
    if new.ty.is_missing() and not expr.ty.is_missing():
        _update_type(new, expr.ty)
    return new


def _own_name(expr: Any) -> str:
    if isinstance(expr, relax.TupleGetItem):
        return f"field{expr.index}"
    return op_name(expr.op).rpartition(".")[2]


def span_of(node: Node, loaded: Loaded) -> Any:
    """The source location that a new binding inherits: that of the last one that it replaces."""
    if not loaded.function.has_spans:
        return None
    return next((span for span in _spans(node, loaded) if span is not None), None)


def _spans(node: Node, loaded: Loaded) -> Iterator[Any]:
    for place in sorted(places_of(node, loaded), reverse=True):
        binding = loaded.function.bindings[place]
        yield binding.span
        yield binding.value.span


def places_of(node: Node, loaded: Loaded) -> list[int]:
    """The numbers of the bindings that a view node stands for or, if it is new, that it replaces."""
    natives = [part.native.reading.native for part in origins(node)]
    return [loaded.function.place[var] for var in dict.fromkeys(natives) if var in loaded.function.place]
