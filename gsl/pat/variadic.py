"""Variadics: any number of instances of a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gsl.attr import Expr, ast
from gsl.attr.ast import Ast, Symbol
from gsl.attr.expr import to_ast
from gsl.attr.text import listed
from gsl.errors import PatternError, PatternTypeError, checked
from gsl.pat.base import Pattern, walk
from gsl.pat.call import Tuple, to_pattern
from gsl.pat.choice import Alt
from gsl.pat.leaf import Wildcard
from gsl.pat.typed import KeywordText


class Variadic(Pattern):
    """A tuple of any number of fields, or any number of outputs, each an instance of ``field``.

    Patterns in ``templates`` are new for every instance, all others are shared; ``first`` gives what stands in their
    places in the first instance. ``index`` is the symbol of the instance's number, ``length`` the number of
    instances, ``min_len`` the least number that matches, ``max_len`` the greatest one.

    As the output of a source, it takes the instances that share its other patterns. If all of its patterns are
    templates, these are instances anywhere in the graph, of which none depends on another one.
    """

    __slots__ = ("count", "field", "first", "max_len", "min_len", "symbol", "templates")
    field: Pattern
    templates: tuple[Pattern, ...]
    first: tuple[Pattern, ...]
    symbol: Symbol | None
    count: Ast | None
    min_len: int
    max_len: int | None

    @checked(PatternTypeError)
    def __init__(
        self,
        field: Any,
        templates: Sequence[Pattern] = (),
        first: Sequence[Any] = (),
        index: Expr | None = None,
        length: Any = None,
        min_len: int = 0,
        max_len: int | None = None,
    ) -> None:
        symbol = index.ast if isinstance(index, Expr) else index
        if symbol is not None and not isinstance(symbol, Symbol):
            raise PatternTypeError.here(f"pat.Variadic: index= takes an attr.Symbol(), got {index!r}")
        for name, patterns in (("templates", templates), ("first", first)):
            if not isinstance(patterns, (list, tuple)):
                raise PatternTypeError.here(f"pat.Variadic: {name}= takes a list of patterns, got {patterns!r}")
        if isinstance(min_len, bool) or not isinstance(min_len, int) or min_len < 0:
            raise PatternError.here(f"pat.Variadic: min_len= takes a number of instances, got {min_len!r}")
        least = max(min_len, 1)
        if max_len is not None and (isinstance(max_len, bool) or not isinstance(max_len, int) or max_len < least):
            raise PatternError.here(f"pat.Variadic: max_len= takes a number from {least} on, got {max_len!r}")
        super().__init__(
            field=to_pattern(field),
            templates=tuple(templates),
            first=tuple(to_pattern(pattern) for pattern in first),
            symbol=symbol,
            count=None if length is None else to_ast(length),
            min_len=min_len,
            max_len=max_len,
        )
        self._check_templates()
        self._check_first()

    def _depends(self) -> frozenset[Symbol]:
        inner = frozenset[Symbol]().union(*(child.free_symbols for child in self.children()))
        outer = frozenset[Symbol]().union(*(node.symbols for node in self.expressions()))
        return (inner - {self.symbol}) | outer

    def _check_templates(self) -> None:
        inside = set(walk(self.field))
        for template in self.templates:
            if isinstance(template, Variadic):
                raise PatternError.here(
                    "pat.Variadic: a template can't be a Variadic: each instance would have any number of parts of "
                    "its own; give it to a pattern that all share, or write the parts out"
                )
            if not isinstance(template, Pattern) or template not in inside:
                raise PatternError.here(
                    f"pat.Variadic: the template {template!r} does not occur in the field {self.field!r}"
                )
        if len(set(self.templates)) < len(self.templates):
            raise PatternError.here("pat.Variadic: a pattern stands twice among the templates")
        if self.templates and self.field not in self.templates:
            raise PatternError.here(f"pat.Variadic: the field {self.field!r} must be one of the templates")
        for pattern in walk(self.field) if self.templates else ():
            if pattern in self.templates:
                continue
            if any(child in self.templates for child in pattern.children()):
                raise PatternError.here(
                    f"pat.Variadic: {pattern!r} is shared by all instances, but one of its operands is a "
                    "template: make it a template too"
                )
            if any(self.symbol in node.symbols for node in pattern.expressions()):
                raise PatternError.here(
                    f"pat.Variadic: {pattern!r} is shared by all instances, but asks for their number {self.symbol!r}: "
                    "make it a template too"
                )

    def _check_first(self) -> None:
        if self.first and len(self.first) != len(self.templates):
            raise PatternError.here(
                f"pat.Variadic: first= gives one pattern for each of the {len(self.templates)} templates, "
                f"got {len(self.first)}"
            )
        for pattern in self.first:
            for part in walk(pattern):
                if part in self.templates:
                    raise PatternError.here(
                        f"pat.Variadic: the first instance {pattern!r} can't contain the template {part!r}"
                    )

    @property
    def shared(self) -> tuple[Pattern, ...]:
        """The patterns of the field that all instances have in common."""
        own = {template for p in walk(self.field) if isinstance(p, (Variadic, Repeat)) for template in p.templates}
        return tuple(p for p in walk(self.field) if p not in self.templates and p not in own)

    @property
    def first_field(self) -> Pattern:
        """The field of the first instance."""
        return self.first[self.templates.index(self.field)] if self.first else self.field

    def __call__(self, template: Pattern, index: Any) -> Instance:
        """The ``index``-th instance of a template."""
        return Instance(self, template, index)

    def arguments(self) -> Iterator[Any]:
        yield self.field
        if self.count is not None:
            yield KeywordText("length", self.count)

    def bounds(self) -> Iterator[str]:
        """The arguments that bound the number of instances, as text."""
        if self.min_len:
            yield f"min_len={self.min_len}"
        if self.max_len is not None:
            yield f"max_len={self.max_len}"

    def parts(self) -> Iterator[Any]:
        field, *length = self.arguments()
        yield from (f"{self.label}(", *listed((field, *self.own(), *length, *self.bounds())), ")")

    def own(self) -> Iterator[str]:
        """The arguments that say what each instance has of its own, as text."""
        for name in ("templates", "first"):
            if patterns := getattr(self, name):
                yield f"{name}=[{', '.join(pattern.label for pattern in patterns)}]"
        if self.symbol is not None:
            yield f"index={self.symbol!r}"

    def children(self) -> Iterator[Pattern]:
        yield self.field
        yield from self.first

    def expressions(self) -> Iterator[Ast]:
        if self.count is not None:
            yield self.count

    def readable(self) -> frozenset[str]:
        return frozenset(("length",))


class Segment(Variadic):
    """Any number of neighbouring fields of a :class:`pat.Tuple`, each an instance of ``field``; by default any fields.

    In a target, a segment of the source stands for the fields that it matched, a new one for its instances. ``greedy``
    prefers long segments: by default where something is demanded of the fields. Every way to divide the fields is a
    match. Arguments are those of :class:`pat.Variadic`; without a field, the fields are any.
    """

    __slots__ = ("greedy",)
    greedy: bool

    @checked(PatternTypeError)
    def __init__(
        self,
        field: Any = None,
        templates: Sequence[Pattern] = (),
        first: Sequence[Any] = (),
        index: Expr | None = None,
        length: Any = None,
        min_len: int = 0,
        max_len: int | None = None,
        *,
        greedy: bool | None = None,
    ) -> None:
        object.__setattr__(self, "greedy", field is not None if greedy is None else greedy)
        if field is None:
            field = Wildcard()
            templates = (field,)
        super().__init__(field, templates, first, index, length, min_len, max_len)

    def own(self) -> Iterator[str]:
        """As of a variadic; of any fields, there is nothing to say."""
        return iter(()) if isinstance(self.field, Wildcard) and self.templates == (self.field,) else super().own()

    def bounds(self) -> Iterator[str]:
        """The arguments that say how many fields it stands for, as text."""
        yield from super().bounds()
        if not self.greedy:
            yield "greedy=False"


def is_open(pattern: Pattern) -> bool:
    """True for a tuple of which the number of fields is open: there are segments among them."""
    return isinstance(pattern, Tuple) and any(isinstance(item, Segment) for item in pattern.items)


def check_segments(patterns: Sequence[Pattern], outputs: Sequence[Pattern]) -> None:
    """Raise PatternError for a segment that is no field of a ``pat.Tuple``."""
    outside = [child for p in patterns if not isinstance(p, Tuple) for child in p.children()]
    for pattern in (*outputs, *outside):
        if isinstance(pattern, Segment):
            raise PatternError(
                f"{pattern.location}: {pattern!r} stands for several fields, so it belongs among those of a tuple: "
                "write pat.Tuple(…, segment, …)"
            )


class Instance(Pattern):
    """The instance of a variadic's template with a given number."""

    __slots__ = ("number", "template", "variadic")
    variadic: Variadic
    template: Pattern
    number: Ast

    def __init__(self, variadic: Variadic, template: Pattern, index: Any) -> None:
        if template not in variadic.templates:
            raise PatternError.here(f"{template!r} is not one of the templates of {variadic!r}")
        if isinstance(index, bool) or not isinstance(index, (int, Expr)):
            raise PatternTypeError.here(f"the number of an instance is an int or an expression, got {index!r}")
        super().__init__(variadic=variadic, template=template, number=to_ast(index))

    @property
    def label(self) -> str:
        return f"instance {self.number!r} of {self.template.label}"

    def expressions(self) -> Iterator[Ast]:
        yield self.number

    def readable(self) -> frozenset[str] | None:
        return self.template.readable()


# ---------------------------------------------------------------- chains


@checked(PatternTypeError)
def Maybe(pattern: Any, on: Any) -> Alt:
    """``p`` or, where it is absent, ``on`` itself, which ``p`` is built on: the alternative ``p | on``."""
    present, base = to_pattern(pattern), to_pattern(on)
    if present is base or base not in set(walk(present)):
        raise PatternError.here(
            f"pat.Maybe: {present!r} is not built on {base!r}: on= is the operand that stands for the whole where "
            "the pattern is absent"
        )
    return Alt(present, base)


class Repeat(Pattern):
    """A chain of nodes that each match a pattern, each the only computed operand of the next.

    Other operands of the nodes must be inputs, parameters or literals; that nothing else uses a node is not demanded
    (that is ``Repeat(p.uniq())``). With ``sole=False`` the nodes may have other computed operands, and each but the
    last is used by the next one only. Stands for its last node; where it uses something, for its first. ``greedy``
    prefers long chains: a rule that is applied in one pass takes the longest that there is, but every part of it is a
    match too. The pattern is a template of which every node has its own instance, leaves included. A sequence is
    repeated as a whole: its tail is the operand of the next one's head.

    ``match[repeat]`` is the last node, ``match.chain(repeat)`` are all of them, first to last, ``repeat.length`` is
    their number, and other attributes are the last node's.
    """

    __slots__ = ("greedy", "max", "min", "pattern", "sole")
    symbol = None
    first = ()
    pattern: Pattern
    min: int
    max: int | None
    greedy: bool
    sole: bool

    @checked(PatternTypeError)
    def __init__(
        self, pattern: Any, min: int = 1, max: int | None = None, *, greedy: bool = True, sole: bool = True
    ) -> None:
        for name, value in (("min", min), ("max", 1 if max is None else max)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PatternError.here(f"pat.Repeat: {name}= takes a number of nodes, 1 or more, got {value!r}")
        if max is not None and max < min:
            raise PatternError.here(f"pat.Repeat: max={max} is less than min={min}")
        super().__init__(pattern=to_pattern(pattern), min=min, max=max, greedy=greedy, sole=sole)

    @property
    def templates(self) -> tuple[Pattern, ...]:
        """The patterns that are new for every node of the chain: the whole pattern."""
        return tuple(walk(self.pattern))

    def parts(self) -> Iterator[Any]:
        yield from ("Repeat(", self.pattern)
        yield f", min={self.min}" if self.min > 1 else ""
        yield "" if self.max is None else f", max={self.max}"
        yield from (f", {name}=False" for name in ("greedy", "sole") if not getattr(self, name))
        yield ")"

    def children(self) -> Iterator[Pattern]:
        yield self.pattern

    def readable(self) -> frozenset[str] | None:
        names = self.pattern.readable()
        return None if names is None else names | {"length"}


def references(node: Ast) -> Iterator[Pattern]:
    """The patterns whose attributes an expression reads."""
    for part in parts(node):
        if isinstance(part, ast.Attribute):
            yield part.pattern
            if isinstance(part.pattern, Instance):
                yield part.pattern.variadic
        elif isinstance(part, ast.Chosen):
            yield part.alternative


def counts(node: Ast, chain: Pattern) -> bool:
    """True if an expression reads the number of nodes of a chain, which is known when all of them are bound."""
    if not isinstance(chain, Repeat):
        return False
    lengths = (part.pattern for part in parts(node) if isinstance(part, ast.Attribute) and part.name == "length")
    return any(pattern is chain for pattern in lengths)


def parts(node: Ast) -> Iterator[Ast]:
    """The parts of an expression, also those of the numbers of instances."""
    stack, done = [node], set()
    while stack:
        part = stack.pop()
        if id(part) not in done:
            done.add(id(part))
            yield part
            if isinstance(part, ast.Attribute) and isinstance(part.pattern, Instance):
                stack.append(part.pattern.number)
            stack.extend(part.children())
