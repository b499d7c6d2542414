"""The patterns: leaves, calls, tuples, alternatives and variadics."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast, Symbol
from gsl.attr.expr import to_ast
from gsl.errors import PatternError, PatternTypeError, UnknownAttributeError, caller, nearest
from gsl.graph import CONST, INPUT, PARAM, Node, Op, op_name
from gsl.pat.base import TENSOR, Pattern, TypeGuard
from gsl.pat.opclass import OpClass, resolve
from gsl.spec import OpSpec


def to_pattern(value: Any) -> Pattern:
    """The pattern of a value given as an operand: patterns, numbers, expressions, arrays, lists, graph nodes."""
    if isinstance(value, Pattern):
        return value
    if isinstance(value, Node):
        return Exactly(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Pattern, Node)) for item in value):
        return Tuple(*value)
    if isinstance(value, (numbers.Number, Expr, list)) or hasattr(value, "__array__"):
        return Const(value)
    raise PatternTypeError(
        f"{value!r} of type {type(value).__name__} can't be an operand: expected a pattern, a number, an array, "
        "an attribute expression, or a list of patterns"
    )


class Leaf(Pattern):
    """A variable of the rule: it stands for a node whatever computes it. Leaves may coincide unless ``distinct``."""

    __slots__ = ("distinct",)
    distinct: bool
    kinds: frozenset[Op] | None = None
    """The kinds of node that match; ``None`` for all."""

    def __init__(self, *, shape: Any = None, dtype: Any = None, ndim: Any = None, distinct: bool = False) -> None:
        super().__init__(TypeGuard.of(shape, dtype, ndim), distinct=distinct)


class Wildcard(Leaf):
    """Any node."""

    __slots__ = ()

    @classmethod
    def _of(cls, guard: TypeGuard) -> Wildcard:
        new = cls()
        object.__setattr__(new, "guard", guard)
        return new


class Variable(Leaf):
    """An input or a parameter; in ``shape=`` a ``None`` stands for any dimension."""

    __slots__ = ()
    kinds = frozenset((INPUT, PARAM))


class Input(Leaf):
    """An input, fed at run time."""

    __slots__ = ()
    kinds = frozenset((INPUT,))


class Param(Leaf):
    """A parameter, whose value is known."""

    __slots__ = ()
    kinds = frozenset((PARAM,))


class Const(Leaf):
    """A literal, equal to ``value`` if that is given (a number, an array, or an attribute expression).

    Numbers compare by value in the graph's dtype, and match a tensor that is filled with them. In a target it is a
    new literal; ``dtype`` makes it a tensor of that dtype.
    """

    __slots__ = ("literal",)
    kinds = frozenset((CONST,))
    literal: Any
    """``None``, an Ast, or an array."""

    def __init__(self, value: Any = None, dtype: Any = None, *, shape: Any = None, distinct: bool = False) -> None:
        super().__init__(shape=shape, dtype=dtype, distinct=distinct)
        if value is not None and not isinstance(value, (Expr, numbers.Number)):
            if isinstance(value, (list, tuple)):
                import numpy

                value = numpy.asarray(value)
            if not hasattr(value, "__array__"):
                raise PatternTypeError(f"pat.Const: expected a number, an array or an expression, got {value!r}")
            object.__setattr__(self, "literal", value)
        else:
            object.__setattr__(self, "literal", None if value is None else to_ast(value))

    @property
    def label(self) -> str:
        return "Const" if self.literal is None else f"Const({self.literal!r})"

    def readable(self) -> frozenset[str]:
        return frozenset((*TENSOR, "value"))

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        if isinstance(self.literal, Ast):
            yield self.literal


class Exactly(Pattern):
    """In a target made by a callable: a given node of the graph."""

    __slots__ = ("node",)
    node: Node

    def __init__(self, node: Node) -> None:
        super().__init__(node=node)


class Call(Pattern):
    """A call of an operator whose operands and attributes match.

    ``op`` is a name, a class of ``gsl.op``, an operator class, or a native function. An attribute is a value or an
    expression; what is not given is not constrained (in a source) or the operator's default (in a target).

    Raises PatternError for an unknown operator, attribute or a wrong number of operands.
    """

    __slots__ = ("attrs", "op", "operands")
    op: OpSpec | OpClass | Op
    operands: tuple[Pattern, ...]
    attrs: Mapping[str, Ast]

    def __init__(self, op: Any, *operands: Any, **attrs: Any) -> None:
        target = op if isinstance(op, OpClass) else resolve(op)
        demands = {name: attrs.pop(name) for name in TENSOR if name in attrs and not _declares(target, name)}
        guard = TypeGuard.of(*(demands.get(name) for name in TENSOR))
        super().__init__(guard, op=target)
        _check_operands(target, operands)
        known = self.readable()
        for name in attrs:
            if known is not None and name not in known:
                raise UnknownAttributeError(
                    f"{caller()}: {self.label} has no attribute {name!r}: {nearest(name, known - set(TENSOR))}"
                )
        object.__setattr__(self, "operands", tuple(to_pattern(operand) for operand in operands))
        object.__setattr__(self, "attrs", {name: to_ast(value) for name, value in attrs.items()})

    @property
    def label(self) -> str:
        return self.op.name if isinstance(self.op, OpSpec) else str(self.op) if isinstance(self.op, OpClass) else (
            op_name(self.op)
        )  # fmt: skip

    def __repr__(self) -> str:
        parts = [repr(operand) for operand in self.operands]
        parts += [f"{name}={value!r}" for name, value in self.attrs.items()]
        return f"{self.label}({', '.join(parts)})"

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands)

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield from self.attrs.values()

    def readable(self) -> frozenset[str] | None:
        if isinstance(self.op, OpSpec):
            return frozenset((*TENSOR, *self.op.attrs))
        if isinstance(self.op, OpClass):
            names = self.op.attributes()
            return None if names is None else names | frozenset(TENSOR)
        return None

    def __getitem__(self, index: Any) -> GetItem:
        if isinstance(self.op, OpSpec) and not self.op.fields:
            raise PatternError(
                f"{caller()}: {self.label} has a single tensor as its result, so it has no field {index!r}; "
                "to slice the tensor write op.StridedSlice or op.Take"
            )
        return super().__getitem__(index)


def _declares(op: OpSpec | OpClass | Op, name: str) -> bool:
    if isinstance(op, OpSpec):
        return name in op.attrs
    return isinstance(op, OpClass) and name in (op.attributes() or ())


def _check_operands(op: OpSpec | OpClass | Op, operands: Sequence[Any]) -> None:
    if not isinstance(op, OpSpec):
        return
    most = len(op.operands)
    if not most - op.optional <= len(operands) <= most:
        raise PatternError(
            f"{caller()}: {op.name} takes {op.arity} operand{'s' * (op.arity != '1')} "
            f"({', '.join(op.operands)}), got {len(operands)}; attributes are given by keyword"
        )


class Like(Pattern):
    """In a target: a call with the operator and all attributes of the node that ``of`` matched, except those given."""

    __slots__ = ("attrs", "of", "operands")
    of: Pattern
    operands: tuple[Pattern, ...]
    attrs: Mapping[str, Ast]

    def __init__(self, of: Pattern, operands: Sequence[Any], attrs: Mapping[str, Any]) -> None:
        super().__init__(of=of, operands=tuple(to_pattern(operand) for operand in operands))
        known = of.readable()
        for name in attrs:
            if known is not None and name not in known:
                raise UnknownAttributeError(f"{caller()}: {of.label} has no attribute {name!r}: {nearest(name, known)}")
        object.__setattr__(self, "attrs", {name: to_ast(value) for name, value in attrs.items()})

    @property
    def label(self) -> str:
        return f"{self.of.label}.like"

    def children(self) -> Iterator[Pattern]:
        return iter(self.operands)

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield from self.attrs.values()

    def readable(self) -> frozenset[str] | None:
        return self.of.readable()


class Tuple(Pattern):
    """A tuple of a fixed number of fields."""

    __slots__ = ("items",)
    items: tuple[Pattern, ...]

    def __init__(self, *fields: Any) -> None:
        super().__init__(items=tuple(to_pattern(field) for field in fields))

    def children(self) -> Iterator[Pattern]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self.items))})"

    def readable(self) -> frozenset[str]:
        return frozenset()


class GetItem(Pattern):
    """A field of a tuple; without an index any field, which ``p.index`` tells."""

    __slots__ = ("number", "tuple")
    tuple: Pattern
    number: Ast | None

    def __init__(
        self, tuple: Any, index: Any = None, *, shape: Any = None, dtype: Any = None, ndim: Any = None
    ) -> None:
        if isinstance(index, (slice, bool, str)) or (index is not None and not isinstance(index, (int, Expr))):
            raise PatternTypeError(f"the index of a tuple's field is an int or an expression, got {index!r}")
        number = None if index is None else to_ast(index)
        super().__init__(TypeGuard.of(shape, dtype, ndim), tuple=to_pattern(tuple), number=number)

    def children(self) -> Iterator[Pattern]:
        yield self.tuple

    def __repr__(self) -> str:
        return f"{self.tuple!r}[{'' if self.number is None else repr(self.number)}]"

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        if self.number is not None:
            yield self.number

    def readable(self) -> frozenset[str]:
        return frozenset((*TENSOR, "index"))


class Alt(Pattern):
    """The first of several alternatives that leads to a whole match."""

    __slots__ = ("choices",)
    choices: tuple[Pattern, ...]

    def __init__(self, *choices: Any, shape: Any = None, dtype: Any = None, ndim: Any = None) -> None:
        if len(choices) == 1 and isinstance(choices[0], (list, tuple)):
            choices = tuple(choices[0])
        if len(choices) < 2:
            raise PatternError(f"{caller()}: pat.Alt takes two alternatives or more, got {len(choices)}")
        super().__init__(TypeGuard.of(shape, dtype, ndim), choices=tuple(to_pattern(choice) for choice in choices))

    def children(self) -> Iterator[Pattern]:
        return iter(self.choices)

    def __repr__(self) -> str:
        return f"({' | '.join(map(repr, self.choices))})"

    def readable(self) -> frozenset[str] | None:
        common: frozenset[str] | None = None
        for choice in self.choices:
            names = choice.readable()
            if names is not None:
                common = names if common is None else common & names
        return common


class Match(Pattern):
    """In a target: the clause for the alternative that an Alt of the source matched."""

    __slots__ = ("alternative", "clauses")
    alternative: Alt
    clauses: tuple[Pattern, ...]

    def __init__(self, alternative: Alt, clauses: Sequence[Any]) -> None:
        if not isinstance(alternative, Alt):
            raise PatternTypeError(f"{caller()}: pat.Match: expected an Alt pattern, got {alternative!r}")
        if len(clauses) != len(alternative.choices):
            raise PatternError(
                f"{caller()}: pat.Match: expected {len(alternative.choices)} clauses, one per alternative, "
                f"got {len(clauses)}"
            )
        super().__init__(alternative=alternative, clauses=tuple(to_pattern(clause) for clause in clauses))

    def children(self) -> Iterator[Pattern]:
        return iter(self.clauses)


class Cond(Pattern):
    """In a target: ``then`` or ``otherwise``, by an attribute expression."""

    __slots__ = ("otherwise", "predicate", "then")
    predicate: Ast
    then: Pattern
    otherwise: Pattern

    def __init__(self, predicate: Any, then: Any, otherwise: Any) -> None:
        super().__init__(predicate=to_ast(predicate), then=to_pattern(then), otherwise=to_pattern(otherwise))

    def children(self) -> Iterator[Pattern]:
        yield self.then
        yield self.otherwise

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield self.predicate


class And(Pattern):
    """A node that matches both patterns."""

    __slots__ = ("both",)
    both: tuple[Pattern, Pattern]

    def __init__(self, left: Any, right: Any) -> None:
        super().__init__(both=(to_pattern(left), to_pattern(right)))

    def children(self) -> Iterator[Pattern]:
        return iter(self.both)

    def __repr__(self) -> str:
        return f"({self.both[0]!r} & {self.both[1]!r})"

    @property
    def label(self) -> str:
        return self.both[0].label

    def readable(self) -> frozenset[str] | None:
        left, right = (pattern.readable() for pattern in self.both)
        return None if left is None or right is None else left | right


class Not(Pattern):
    """Any node that does not match the pattern; what the pattern holds stays unknown outside of it."""

    __slots__ = ("pattern",)
    pattern: Pattern

    def __init__(self, pattern: Any) -> None:
        super().__init__(pattern=to_pattern(pattern))

    def children(self) -> Iterator[Pattern]:
        yield self.pattern

    def __repr__(self) -> str:
        return f"~{self.pattern!r}"


class Variadic(Pattern):
    """A tuple of any number of fields, or any number of outputs, each an instance of ``field``.

    Patterns in ``templates`` are new for every instance, all others are shared; ``first`` gives what stands in their
    places in the first instance. ``index`` is the symbol of the instance's number, ``length`` the number of
    instances, ``min_len`` the least number that matches.
    """

    __slots__ = ("count", "field", "first", "min_len", "symbol", "templates")
    field: Pattern
    templates: tuple[Pattern, ...]
    first: tuple[Pattern, ...]
    symbol: Symbol | None
    count: Ast | None
    min_len: int

    def __init__(
        self,
        field: Any,
        templates: Sequence[Pattern] = (),
        first: Sequence[Pattern] = (),
        index: Expr | None = None,
        length: Any = None,
        min_len: int = 0,
    ) -> None:
        symbol = None if index is None else index.ast
        if symbol is not None and not isinstance(symbol, Symbol):
            raise PatternTypeError(f"{caller()}: pat.Variadic: index= takes an attr.Symbol(), got {index!r}")
        super().__init__(
            field=to_pattern(field),
            templates=tuple(templates),
            first=tuple(first),
            symbol=symbol,
            count=None if length is None else to_ast(length),
            min_len=min_len,
        )
        self._check()

    def _check(self) -> None:
        where = f"{caller()}: pat.Variadic: "
        inside = set(walk(self.field))
        if self.templates and self.field not in self.templates:
            raise PatternError(f"{where}the field {self.field!r} must be one of the templates")
        for template in self.templates:
            if template not in inside:
                raise PatternError(f"{where}the template {template!r} does not occur in the field {self.field!r}")
            if isinstance(template, Variadic):
                raise PatternError(f"{where}a template can't be a Variadic")
        for pattern in inside.difference(self.templates):
            if self.templates and any(child in self.templates for child in pattern.children()):
                raise PatternError(
                    f"{where}{pattern!r} is shared by all instances, but one of its operands is a template: "
                    "make it a template too"
                )
        if self.first and len(self.first) != len(self.templates):
            raise PatternError(
                f"{where}first= gives one pattern for each of the {len(self.templates)} templates, "
                f"got {len(self.first)}"
            )
        for pattern in self.first:
            for part in walk(pattern):
                if part in self.templates:
                    raise PatternError(f"{where}the first instance {pattern!r} can't contain the template {part!r}")
        if isinstance(self.min_len, bool) or not isinstance(self.min_len, int) or self.min_len < 0:
            raise PatternError(f"{where}min_len= takes a number of instances, got {self.min_len!r}")

    @property
    def first_field(self) -> Pattern:
        """The field of the first instance."""
        return self.first[self.templates.index(self.field)] if self.first else self.field

    def __call__(self, template: Pattern, index: Any) -> Instance:
        """The ``index``-th instance of a template."""
        return Instance(self, template, index)

    def children(self) -> Iterator[Pattern]:
        yield self.field
        yield from self.first

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        if self.count is not None:
            yield self.count

    def readable(self) -> frozenset[str]:
        return frozenset(("length",))


class Instance(Pattern):
    """The instance of a variadic's template with a given number."""

    __slots__ = ("number", "template", "variadic")
    variadic: Variadic
    template: Pattern
    number: Ast

    def __init__(self, variadic: Variadic, template: Pattern, index: Any) -> None:
        if template not in variadic.templates:
            raise PatternError(f"{caller()}: {template!r} is not one of the templates of the variadic")
        super().__init__(variadic=variadic, template=template, number=to_ast(index))

    @property
    def label(self) -> str:
        return f"instance {self.number!r} of {self.template.label}"

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        return self.number.symbols

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        yield self.number

    def readable(self) -> frozenset[str] | None:
        return self.template.readable()


def same_attr(pattern: Pattern, names: Sequence[str]) -> dict[str, Expr]:
    """The dictionary ``{name: pattern.name}``, to be passed on with ``**``."""
    return {name: getattr(pattern, name) for name in names}


def walk(*roots: Pattern) -> Iterator[Pattern]:
    """Every pattern that the roots are made of, each once, operands before users."""
    done: set[Pattern] = set()
    stack: list[tuple[Pattern, Iterator[Pattern]]] = []
    for root in roots:
        if root not in done:
            stack.append((root, root.children()))
            done.add(root)
        while stack:
            pattern, children = stack[-1]
            for child in children:
                if child not in done:
                    done.add(child)
                    stack.append((child, child.children()))
                    break
            else:
                stack.pop()
                yield pattern
