"""Calls of operators, tuples and their fields; leaves and calls under the names of TVM's dataflow pattern language."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any, Final

from gsl.attr import Expr
from gsl.attr.ast import Ast, Literal, Symbol
from gsl.attr.expr import to_ast
from gsl.errors import PatternError, PatternTypeError, UnknownAttributeError, checked, nearest
from gsl.graph import Node, Op, op_name
from gsl.pat.base import Pattern, check_names
from gsl.pat.leaf import Const, Exactly, Variable, Wildcard
from gsl.pat.opclass import OpClass, resolve
from gsl.pat.typed import TENSOR, KeywordText, TypeGuard
from gsl.spec import TABLE, DeclaredSpec, OpSpec
from gsl.spec.natives import OnnxOp, argument_at, arguments

CalledOperator = OpSpec | OpClass | Op


def to_pattern(value: Any) -> Pattern:
    """The pattern of a value given as an operand: patterns, numbers, expressions, arrays, lists, graph nodes."""
    if isinstance(value, Pattern):
        return value
    if isinstance(value, Node):
        return Exactly(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Pattern, Node)) for item in value):
        return Tuple(*value)
    if isinstance(value, (numbers.Number, Expr, list)) or hasattr(type(value), "__array__"):
        return Const(value)  # some objects claim to have any attribute
    raise PatternTypeError.here(
        f"{value!r} of type {type(value).__name__} can't be an operand: expected a pattern, a number, an array, "
        f"an attribute expression, or a list of patterns{instead(value)}"
    )


def is_operator(value: Any) -> bool:
    """True for an operator itself, of which a call is a pattern."""
    return isinstance(getattr(value, "spec", None), OpSpec)


_FRAMEWORKS: Final = frozenset(("torch", "tvm", "onnx", "onnx_ir", "onnxscript"))
_OF_PROGRAMS: Final = frozenset(("gsl.rewrite.subst", "gsl.rewrite.ruleset", "gsl.workload.workload"))
"""The modules of what is called with a program or its inputs: rules, sets of rules, and programs themselves."""


def takes_match(value: Any) -> bool:
    """True for what may be a function of the match: no class, pattern, operator or rule, and no module, expression or
    function of a framework."""
    if not callable(value) or isinstance(value, (type, BuiltinFunctionType, Pattern)) or is_operator(value):
        return False
    if isinstance(value, (FunctionType, MethodType)):
        return str(value.__module__).partition(".")[0] not in _FRAMEWORKS
    homes = [kind.__module__ for kind in type(value).__mro__]
    return not any(home in _OF_PROGRAMS or home.partition(".")[0] in _FRAMEWORKS for home in homes)


def instead(value: Any) -> str:
    """The end of a message on a value that is no pattern: what to write. Empty where that is not known."""
    if is_operator(value):
        return f"; a call of it is {value!r}(…)"
    if isinstance(value, str):
        return f"; a call of an operator by its name is is_op({value!r})"
    if callable(value):
        return "; Subst.from_programs(before, after) makes a rule of two functions or modules"
    return ""


class Call(Pattern):
    """A call of an operator whose operands and attributes match.

    ``op`` is a name, a class of ``gsl.op``, an operator class, or a native function. An attribute is a value or an
    expression; an attribute that is not given is not constrained (in a source) or has the operator's default (in a
    target). In a source, ``shape=``, ``dtype=`` and ``ndim=`` are demands on the type of the result, unless they are
    attributes of the operator. All arguments of a native function are its own; ``has_shape``, ``has_dtype`` and
    ``has_ndim`` are the demands there.

    Raises PatternError for an unknown operator, attribute or a wrong number of operands.
    """

    __slots__ = ("attrs", "op", "operands")
    op: CalledOperator
    operands: tuple[Pattern, ...] | None
    """``None`` where nothing is demanded of them, see :func:`gsl.pat.is_op`."""
    attrs: Mapping[str, Ast]

    def __init__(self, op: Any, /, *operands: Any, **attrs: Any) -> None:
        self._fill(op, operands, attrs)

    @classmethod
    def _free(cls, op: Any, attrs: Mapping[str, Any] = MappingProxyType({})) -> Call:
        """A call of the operator, with any operands."""
        call = cls.__new__(cls)
        call._fill(op, None, dict(attrs))
        return call

    @property
    def operator(self) -> CalledOperator:
        return self.op

    def __call__(self, *operands: Any, **attrs: Any) -> Call:
        """A call pattern that left its operands open, with operands."""
        if self.operands is not None:
            raise PatternError.here(f"{self!r} has operands already")
        return Call(self.op, *operands, **attrs)

    def _fill(self, op: Any, operands: Sequence[Any] | None, attrs: dict[str, Any]) -> None:
        target = op if isinstance(op, OpClass) else resolve(op)
        demands = {name: attrs.pop(name) for name in TENSOR if name in attrs and _is_typed(target, name)}
        if operands is not None:
            _check_operands(target, operands, attrs)
        super().__init__(
            TypeGuard.of(**demands),
            op=target,
            operands=None if operands is None else tuple(to_pattern(operand) for operand in operands),
            attrs=_attributes(target, _label(target), attrs),
        )

    @property
    def label(self) -> str:
        return _label(self.op)

    def arguments(self) -> Iterator[Any]:
        yield from ("...",) if self.operands is None else self.operands
        yield from (KeywordText(name, value) for name, value in self.attrs.items())
        if self.guard is not None:
            yield from self.guard.keywords()

    def parts(self) -> Iterator[Any]:
        parts = list(super().parts())
        yield from parts if len(parts) > 1 else (*parts, "()")

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands or ())

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield from self.attrs.values()

    def readable(self) -> frozenset[str] | None:
        names = declared(self.op)
        is_tensor = not (isinstance(self.op, OpSpec) and self.op.fields)
        return None if names is None else names.union(TENSOR) if is_tensor else names


class Like(Pattern):
    """A call, in a target, with the operator and all attributes of the node that ``of`` matched, except those given."""

    __slots__ = ("attrs", "of", "operands")
    of: Pattern
    operands: tuple[Pattern, ...]
    attrs: Mapping[str, Ast]

    def __init__(self, of: Pattern, operands: Sequence[Any], attrs: Mapping[str, Any]) -> None:
        op = of.operator
        if op is None:
            check_names(f"{of.label}.like: what it matches", attrs, of.readable())
        else:
            _check_operands(op, operands, attrs)
        super().__init__(
            of=of,
            operands=tuple(to_pattern(operand) for operand in operands),
            attrs=_attributes(op, f"{of.label}.like", attrs),
        )

    def _depends(self) -> frozenset[Symbol]:
        return super()._depends() | self.of.free_symbols

    @property
    def label(self) -> str:
        return f"{self.of.label}.like"

    def arguments(self) -> Iterator[Any]:
        yield from self.operands
        yield from (KeywordText(name, value) for name, value in self.attrs.items())

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands)

    def expressions(self) -> Iterator[Ast]:
        yield from self.attrs.values()

    def readable(self) -> frozenset[str] | None:
        return self.of.readable()


class Tuple(Pattern):
    """A tuple of fields, as many as there are patterns; a ``pat.Segment`` stands for any number of them."""

    __slots__ = ("items",)
    items: tuple[Pattern, ...]

    def __init__(self, *fields: Any) -> None:
        super().__init__(items=tuple(to_pattern(field) for field in fields))

    def children(self) -> Iterator[Pattern]:
        return iter(self.items)

    def readable(self) -> frozenset[str]:
        return frozenset()


class GetItem(Pattern):
    """A field of a tuple; without an index any field, which ``p.index`` tells."""

    __slots__ = ("number", "tuple")
    tuple: Pattern
    number: Ast | None

    @checked(PatternTypeError)
    def __init__(
        self, tuple: Any, index: Any = None, *, shape: Any = None, dtype: Any = None, ndim: Any = None
    ) -> None:
        if isinstance(index, bool) or not (index is None or isinstance(index, (int, str, Expr))):
            raise PatternTypeError.here(
                f"the index of a tuple's field is an int or an expression, got {index!r}; to slice a tensor "
                "write op.StridedSlice or op.Take"
            )
        whole = to_pattern(tuple)
        op = whole.operator
        if isinstance(index, str):
            index = _named_field(op, whole, index)
        if isinstance(op, OpSpec) and not op.fields:
            raise PatternError.here(
                f"{whole.label} has a single tensor as its result, so it has no field {index!r}; to slice the "
                "tensor write op.StridedSlice or op.Take"
            )
        if isinstance(whole, Tuple) and isinstance(index, int) and not -len(whole.items) <= index < len(whole.items):
            raise PatternError.here(f"there is no field {index} of {whole!r}, which has {len(whole.items)}")
        number = None if index is None else to_ast(index)
        super().__init__(TypeGuard.of(shape, dtype, ndim), tuple=whole, number=number)

    def children(self) -> Iterator[Pattern]:
        yield self.tuple

    def arguments(self) -> Iterator[Any]:
        yield self.tuple
        yield from () if self.number is None else (self.number,)
        yield from self.guard.keywords() if self.guard is not None else ()

    def parts(self) -> Iterator[Any]:
        if self.guard is not None:
            yield from super().parts()
            return
        yield self.tuple
        yield from ("[", "" if self.number is None else self.number, "]")

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        if self.number is not None:
            yield self.number

    def readable(self) -> frozenset[str]:
        return frozenset((*TENSOR, "index"))


def _named_field(op: CalledOperator | None, whole: Pattern, name: str) -> int:
    """The number of a result of a user's operator by the argument whose new value it is."""
    names = op.native.result_names if isinstance(op, DeclaredSpec) and op.fields else ()
    if name not in names or not name:
        raise PatternError.here(
            f"{whole.label} has no result of the name {name!r}: {nearest(name, filter(None, names))}; the "
            "results that are new values of arguments have their names"
        )
    return int(names.index(name))


def _label(op: CalledOperator) -> str:
    return op.name if isinstance(op, OpSpec) else str(op) if isinstance(op, OpClass) else op_name(op)


def declared(op: CalledOperator | None) -> frozenset[str] | None:
    """The attributes that the operator has; ``None`` if that is only known of the matched node."""
    if isinstance(op, OpSpec):
        return frozenset(op.attrs)
    return op.attributes() if isinstance(op, OpClass) else None


def _is_native(op: CalledOperator) -> bool:
    """True if an operator is a native target, or a class of native targets."""
    if isinstance(op, OpClass):
        return bool(op.members) and not any(isinstance(member, str) for member in op.members or ())
    return not isinstance(op, OpSpec)


def _is_typed(op: CalledOperator, name: str) -> bool:
    """True if ``shape=``, ``dtype=`` or ``ndim=`` of a call means the result's type, not an attribute."""
    if isinstance(op, OpClass):
        return not _all_members(op, lambda spec: name in spec.attrs, natives=True)
    return isinstance(op, OpSpec) and name not in op.attrs and not op.fields


def _all_members(op: OpClass, holds: Callable[[OpSpec], bool], *, natives: bool) -> bool:
    """True if something holds for all operators of a class, as far as they are known; ``natives`` is the answer for
    native targets."""
    members = op.members or ()
    return bool(members) and all(holds(TABLE[m]) if isinstance(m, str) else natives for m in members)


def _check_operands(op: CalledOperator, operands: Sequence[Any], given: Iterable[str]) -> None:
    """``given`` are the names of the arguments by keyword."""

    def refuses(spec: OpSpec) -> bool:
        return not spec.takes(len(operands))

    if isinstance(op, OpClass) and _all_members(op, refuses, natives=False):
        end = "" if operands else f"; is_op({op}), which is not called, has any operands"
        raise PatternError.here(f"no operator of {op} takes {len(operands)} operands{end}")
    if isinstance(op, OpSpec) and refuses(op):
        known = f" ({', '.join(op.operands)})" if op.operands else ""
        raise PatternError.here(
            f"{op.name} takes {op.arity} operand{'s' * (op.arity != '1')}{known}, got {len(operands)}"
            + _about_operands(op, len(operands), given)
        )
    if _is_native(op):
        for place, value in enumerate(operands):
            if value is None or isinstance(value, str):
                name = None if isinstance(op, OpClass) else argument_at(op, place)
                if isinstance(op, OnnxOp) and value is None:
                    name = f"arg{place}"
                raise PatternTypeError.here(
                    f"{_label(op)}: {value!r} is no operand: operands are tensors and numbers, other arguments are "
                    f"given by keyword, as {name or 'name'}={value!r}"
                )


def _about_operands(op: OpSpec, count: int, given: Iterable[str]) -> str:
    """The mend, where a call has another number of operands than its operator takes."""
    names = [name for name in given if name in op.operands]
    if names:
        return f", and by keyword {', '.join(names)}: operands are given by position"
    if op.operands == ("data", "weight") and count == 3:
        return "; a bias is a call of its own: op.BiasAdd(…, bias)"
    if count > len(op.operands) and op.own_attrs:
        return f"; attributes are given by keyword: {', '.join(op.own_attrs)}"
    return "" if count else f"; is_op({op.name!r}), which is not called, has any operands"


def _native_ast(value: Any) -> Ast:
    """The syntax tree of an argument of a native call, which may also be an object of its framework: a dtype, a module.

    PatternTypeError for tensors, which are operands.
    """
    plain = isinstance(value, (Expr, Ast, tuple, list, numbers.Number, Pattern))
    if plain or hasattr(value, "__array__") or type(value).__module__ == "numpy":
        return to_ast(value)
    return Literal(value)


def _check_arguments(target: Any, owner: str, given: Iterable[str]) -> None:
    """Raise PatternError for an argument that an operator of torch lacks, and for a demand on the type of a function of
    torch that is written like an argument of it. Functions of torch have more arguments than those of their operators.
    """
    is_function = type(target).__name__ != "OpOverload"
    names = [name for name in given if name in TENSOR or not is_function]
    known = arguments(target) if names else None
    for name in names:
        if known is None or name in known:
            continue
        if name in TENSOR:
            raise PatternError.here(
                f"{owner} has no argument {name!r}; what is demanded of its result is written .has_{name}(…)"
            )
        raise UnknownAttributeError.here(f"{owner} has no argument {name!r}: {nearest(name, known)}")


def _attributes(op: CalledOperator | None, owner: str, given: Mapping[str, Any]) -> Mapping[str, Ast]:
    """The attributes given to a call. PatternError for unknown names and for literals that have no meaning."""
    if not given:
        return MappingProxyType({})
    check_names(owner, given, declared(op))
    native = op is not None and _is_native(op)
    if native:
        _check_arguments(op, owner, given)
    attrs = {name: _native_ast(value) if native else to_ast(value) for name, value in given.items()}
    for name, node in attrs.items():
        if isinstance(op, OpSpec) and isinstance(node, Literal):
            try:
                op.normalise(name, node.value, ())
            except ValueError as error:
                raise PatternError.here(str(error)) from None
    return MappingProxyType(attrs)


# Under the names of TVM's dataflow pattern language


def is_op(op: Any) -> Call:
    """A call of an operator, with any operands; ``is_op("add")(x, y)`` fixes them."""
    return Call._free(op)


def wildcard() -> Wildcard:
    """Any node."""
    return Wildcard()


def is_const() -> Const:
    """Any literal."""
    return Const()


def is_var(*, shape: Any = None, dtype: Any = None, ndim: Any = None) -> Variable:
    """Any input or parameter."""
    return Variable(shape=shape, dtype=dtype, ndim=ndim)


def is_tuple(*items: Any) -> Tuple:
    """A tuple of these fields; a single list is accepted."""
    return Tuple(*(items[0] if len(items) == 1 and isinstance(items[0], (list, tuple)) else items))


def is_tuple_get_item(whole: Any, index: int | None = None) -> GetItem:
    """A field of a tuple."""
    return GetItem(whole, index)
