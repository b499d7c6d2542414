"""The demands of a rule on attributes and types, taken apart: equations, memberships, and other conditions.

A guard ``strides=conv.strides`` is an equation between two terms, of which either side may be decided first and gives
the value of the other. A condition that can't be solved so is a test, which is asked as soon as all values that it
reads are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from gsl.attr.ast import (
    Ast,
    Attribute,
    Binary,
    Chosen,
    Each,
    Function,
    Item,
    Literal,
    Slice,
    Symbol,
    TupleOf,
    Unary,
    conjuncts,
)
from gsl.attr.evaluate import NO_VALUE, AttrScope, evaluated, same
from gsl.errors import EvaluationError
from gsl.match.bindings import AttrPath, MatchScope, read
from gsl.pat import AttrEqual, Call, Const, GetItem, Instance, Pattern, Repeat, Variadic
from gsl.pat.variadic import parts, references
from gsl.spec import TABLE
from gsl.verify.choices import LARGEST, SIZES, Choices, Dead
from gsl.verify.draft import NodeDraft, is_decided
from gsl.verify.skeleton import Skeleton

DemandTerm = tuple[NodeDraft, str]


@dataclass(frozen=True, eq=False)
class Demand:
    """A condition, seen from an instance of the variadics around it."""

    test: Ast
    path: AttrPath
    symbols: Mapping[Symbol, Any]
    exact: bool = True
    """False for the value of an attribute as the user wrote it, which need not be in canonical form."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the attributes that it reads."""
        return _names(self.test)


_ABSENT: Any = object()
_Question = Callable[[Ast, AttrScope, dict[Symbol, Any]], Any]
_AttrReading = tuple[NodeDraft, str, Any, Any]
"""A reading of an attribute of a draft: its value, or what is known of the draft's type where it has none."""


class _RecordingScope(MatchScope):
    """The values of drafts, together with all that was read of them."""

    def __init__(self, bindings: Any, path: AttrPath) -> None:
        super().__init__(bindings, path)
        self.readings: list[_AttrReading] = []
        self.awaited: list[_AttrReading] = []
        """The reading that failed."""

    def attribute(self, pattern: Pattern, name: str, symbols: dict[Symbol, Any]) -> Any:
        if name == "length" and isinstance(pattern, (Variadic, Repeat)):
            return self.bindings.count(pattern, self.path)
        draft: Any = self.bindings.node(pattern, self.path, symbols)
        value = draft.attrs.get(name, _ABSENT)
        self.readings.append((draft, name, value, _known_type(draft) if value is _ABSENT else None))
        try:
            return read(draft, name)
        except EvaluationError:
            self.awaited = self.readings[-1:]
            raise


def _known_type(draft: NodeDraft) -> Any:
    return draft.type, draft.ndim, draft.wants_dtype, None if draft.sizes is None else tuple(draft.sizes)


def _are_current(readings: list[_AttrReading]) -> bool:
    for draft, name, value, known in readings:
        if draft.attrs.get(name, _ABSENT) is not value or (known is not None and known != _known_type(draft)):
            return False
    return True


class Demands:
    """The conditions of a rule for one skeleton."""

    def __init__(self, skeleton: Skeleton, where: tuple[Ast, ...], choices: Choices) -> None:
        self.bindings = skeleton.bindings
        self.choices = choices
        self.sources: dict[DemandTerm, list[tuple[Demand, Any, Ast, Any]]] = {}
        """The terms that equal each attribute of a draft (or a part of it), or have it as an item."""
        self.about: dict[NodeDraft, list[Demand]] = {}
        """The conditions in which a draft occurs."""
        self._answers: dict[tuple[Demand, int], tuple[list[_AttrReading], Any]] = {}
        """The known facts about an expression, with all that was read to find them."""
        for draft in skeleton.drafts:
            for pattern, path in draft.patterns:
                self._pattern(pattern, path)
        for key in list(skeleton.bindings.counts):
            if isinstance(key[0], Variadic) and key[0].count is not None:
                self._add(Binary("==", Attribute(key[0], "length"), key[0].count), key[1], {})
        for node in where:
            self._add(node, (), {})
        for constraint, path in skeleton.constraints:
            if isinstance(constraint, AttrEqual):
                self._equal(constraint, path)

    def _pattern(self, pattern: Pattern, path: AttrPath) -> None:
        symbols = self.bindings.symbols(pattern, path)
        for test, exact in _equations(pattern):
            self._note(Demand(test, path, symbols, exact))

    def _equal(self, constraint: AttrEqual, path: AttrPath) -> None:
        node: Any = self.bindings.get(constraint.left, path)
        spec = TABLE.get(node.op) if node is not None else None
        names = constraint.names
        if names is None:
            names = () if spec is None else tuple(spec.own_attrs)
        for name in names:
            self._note(Demand(_equation(Attribute(constraint.left, name), Attribute(constraint.right, name)), path, {}))

    def _add(self, node: Ast, path: AttrPath, symbols: Mapping[Symbol, Any]) -> None:
        """Add a condition as the conditions of which it is the conjunction; of a disjunction one side is chosen.

        Dead if it does not hold for the alternatives of the skeleton.
        """
        for part in conjuncts(node):
            match self._left_of(part, path):
                case Literal(True):
                    pass
                case Literal(False):
                    raise Dead(f"{part} does not hold for these alternatives")
                case Binary("&") as both:
                    self._add(both, path, symbols)
                case Binary("|", left, right) as part:
                    side = self.choices.index(2, ("side", part))
                    self._add((left, right)[side], path, symbols)
                case Function("all", (Each(symbol, body, length, None),)) if length is not None:
                    count = self.value(length, path, symbols)
                    for number in range(count if isinstance(count, int) else 0):
                        self._add(body, path, {**symbols, symbol: number})
                case part:
                    self._note(Demand(part, path, symbols))

    def _left_of(self, node: Ast, path: AttrPath) -> Ast:
        """The part of a condition that is left to ask for the alternatives of the skeleton, or whether it holds."""
        match node:
            case Chosen(alternative, clauses):
                number = self.bindings.chosen.get(self.bindings.key(alternative, path))
                return node if number is None else self._left_of(clauses[number], path)
            case Unary("~", operand):
                match self._left_of(operand, path):
                    case Literal(bool(value)):
                        return Literal(not value)
                    case left:
                        return node if left is operand else Unary("~", left)
            case Binary("&" | "|" as operator, left, right):
                sides = self._left_of(left, path), self._left_of(right, path)
                for side, other in (sides, sides[::-1]):
                    if isinstance(side, Literal) and isinstance(side.value, bool):
                        return side if side.value is (operator == "|") else other
        return node

    def _note(self, fact: Demand) -> None:
        test = fact.test
        if isinstance(test, Binary) and test.operator == "==":
            for side, other in ((test.left, test.right), (test.right, test.left)):
                self._source(side, other, fact, False)
            if isinstance(test.left, TupleOf) and isinstance(test.right, TupleOf):
                for a, b in zip(test.left.items, test.right.items):
                    self._source(a, b, fact, False)
                    self._source(b, a, fact, False)
        elif isinstance(test, Function) and test.name == "In":
            value, sequence = test.operands
            self._source(value, sequence, fact, True)
            if isinstance(value, TupleOf):
                for place, item in enumerate(value.items):
                    self._source(item, sequence, fact, (value, place))
        for draft in dict.fromkeys(self._drafts(test, fact)):
            self.about.setdefault(draft, []).append(fact)

    def _source(self, side: Ast, other: Ast, fact: Demand, member: Any) -> None:
        part: Any = None
        if isinstance(side, Binary) and side.operator in "+-" and not member:
            back = "-" if side.operator == "+" else "+"
            self._source(side.left, Binary(back, other, side.right), fact, False)
            if side.operator == "+":
                self._source(side.right, Binary("-", other, side.left), fact, False)
            return
        if isinstance(side, Function) and side.name in ("Inverse", "Reverse") and not member:  # each undoes itself
            self._source(side.operands[0], Function(side.name, (other,)), fact, False)
            return
        if isinstance(side, (Item, Slice)) and isinstance(side.sequence, Attribute):
            if isinstance(side, Item):
                part = side.index
            else:
                part = slice(*(self.value(n, fact.path, fact.symbols) for n in (side.start, side.stop, side.step)))
            side = side.sequence
        elif isinstance(side, Function) and side.name == "Len" and isinstance(side.operands[0], Attribute):
            part, side = len, side.operands[0]
        if isinstance(side, Attribute):
            draft = self._draft(side.pattern, fact)
            if draft is not None:
                self.sources.setdefault((draft, side.name), []).append((fact, part, other, member))

    def _draft(self, pattern: Any, fact: Demand) -> NodeDraft | None:
        try:
            found: Any = self.bindings.get(pattern, fact.path, dict(fact.symbols))
        except EvaluationError:
            return None
        return found if isinstance(found, NodeDraft) else None

    def _drafts(self, test: Ast, fact: Demand) -> Iterator[NodeDraft]:
        for pattern in _references(test):
            if isinstance(pattern, Instance) and pattern.number.symbols - set(fact.symbols):
                continue
            draft = self._draft(pattern, fact)
            if draft is not None:
                yield draft

    # What follows from what is decided

    def value(self, node: Ast, path: AttrPath, symbols: Mapping[Symbol, Any]) -> Any:
        """The value of an expression; ``None`` where it depends on values that are not decided."""
        return _decided_value(node, MatchScope(self.bindings, path), dict(symbols))

    def given(self, draft: NodeDraft, name: str) -> Iterator[tuple[Any, Any]]:
        """The given values of an attribute, as pairs of a part of it (``None``: all of it) and a value."""
        for fact, part, other, member in self.sources.get((draft, name), ()):
            if not member:
                value, place = self._found(other, fact), self._place(part, fact)
                if place is not _ABSENT and (value is not None or (isinstance(other, Literal) and other.value is None)):
                    yield place, value

    def axes(self, draft: NodeDraft) -> Iterator[int]:
        """The axes of a draft that a condition reads alone, as far as they are decided."""
        for fact, part, _, _ in self.sources.get((draft, "shape"), ()):
            place = self._place(part, fact)
            if isinstance(place, int):
                yield place

    def _place(self, part: Any, fact: Demand) -> Any:
        """A part of an attribute, with the number of an item that is an expression; absent where it is not decided."""
        if not isinstance(part, Ast):
            return part
        found = self._found(part, fact)
        return _ABSENT if found is None else found

    def binds(self, draft: NodeDraft, name: str) -> bool:
        """True if an attribute follows from a term, now or later, that does not follow from it in turn."""
        for fact, _, other, member in self.sources.get((draft, name), ()):
            plain = other.sequence if isinstance(other, (Item, Slice)) else other
            if not member and (not isinstance(plain, Attribute) or self._found(other, fact) is not None):
                return True
        return False

    def limits(self, draft: NodeDraft, name: str) -> bool:
        """True if an attribute must be one of some values."""
        return any(member and part is None for _, part, _, member in self.sources.get((draft, name), ()))

    def _found(self, other: Ast, fact: Demand) -> Any:
        value = self._answer(other, fact, _decided_value)
        return self._literal(other, fact) if value is None and isinstance(other, Attribute) else value

    def _literal(self, other: Attribute, fact: Demand) -> Any:
        """The value that an attribute is to have which is not decided, where the rule says it as a literal."""
        draft = self._draft(other.pattern, fact)
        said = self.sources.get((draft, other.name), ()) if draft is not None else ()
        whole = (equal for _, part, equal, member in said if part is None and not member)
        return next((equal.value for equal in whole if isinstance(equal, Literal)), None)

    def _answer(self, node: Ast, fact: Demand, question: _Question) -> Any:
        """The answer to a question about an expression, which is asked again only if what it reads has changed.

        Where the last thing that it read was not decided, that is what it waits for.
        """
        known = self._answers.get((fact, id(node)))
        if known is not None and _are_current(known[0]):
            return known[1]
        scope = _RecordingScope(self.bindings, fact.path)
        answer = question(node, scope, dict(fact.symbols))
        self._answers[fact, id(node)] = scope.awaited or scope.readings, answer
        return answer

    def options(self, draft: NodeDraft, name: str) -> list[Any] | None:
        """The values of which an attribute must be one, ``None`` if nothing is known."""
        for fact, part, other, member in self.sources.get((draft, name), ()):
            if member and part is None:
                found = self._found(other, fact)
                if isinstance(found, tuple):
                    return list(found) if member is True else self._items(found, fact, *member)
        return None

    def _items(self, found: tuple[Any, ...], fact: Demand, value: TupleOf, place: int) -> list[Any]:
        """Of the tuples of which one must be the value, the items at a place, as far as the others are not decided."""
        known = [None if i == place else self._found(item, fact) for i, item in enumerate(value.items)]
        fit = [row for row in found if len(row) == len(known)]
        fit = [row for row in fit if all(k is None or same(k, item) for k, item in zip(known, row))]
        return list(dict.fromkeys([row[place] for row in fit]))

    def members(self, name: str) -> list[Any] | None:
        """The values that all of the memberships of an attribute allow, for every draft."""
        allowed: list[Any] | None = None
        for (draft, found), _ in self.sources.items():
            options = self.options(draft, name) if found == name else None
            if options is not None:
                allowed = options if allowed is None else [value for value in allowed if value in options]
        return allowed or None

    def equate(self, first: NodeDraft, second: NodeDraft, name: str) -> bool:
        """True if a condition demands that an attribute is the same for two drafts."""
        for fact, part, other, member in self.sources.get((first, name), ()):
            if part is not None or member or not isinstance(other, Attribute) or other.name != name:
                continue
            if self._draft(other.pattern, fact) is second:
                return True
        return False

    def reads(self, draft: NodeDraft, name: str) -> bool:
        """True if a condition on a draft reads such an attribute."""
        return any(name in fact.names for fact in self.about.get(draft, ()))

    def numbers(self, draft: NodeDraft, name: str) -> list[Any]:
        """The numbers beside an attribute in the conditions on a draft."""
        reading = (fact for fact in self.about.get(draft, ()) if name in fact.names)
        return list(dict.fromkeys(number for fact in reading for number in _numbers(fact.test)))

    @cached_property
    def _tests(self) -> Sequence[Ast]:
        """The conditions on drafts, each once."""
        return list({id(fact.test): fact.test for demands in self.about.values() for fact in demands}.values())

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Sizes larger than the usual ones that conditions on shapes are likely to allow, by the numbers in them."""
        shaped = (test for test in self._tests if "shape" in _names(test))
        named = {n for test in shaped for n in _numbers(test) if isinstance(n, int) and 1 < n <= LARGEST}
        near = sorted({n * times + more for n in named for times, more in ((1, 0), (1, 1), (2, 0), (3, 0))})
        return [n for n in near if SIZES < n <= LARGEST]

    @cached_property
    def parted(self) -> Sequence[NodeDraft]:
        """The drafts in a condition that dtypes are not equal."""
        return [draft for draft, facts in self.about.items() if any(map(_parts_dtypes, facts))]

    def holds(self, draft: NodeDraft) -> bool:
        """True if the conditions in which a draft occurs hold, as far as they are decided."""
        return all(self.holds_fact(fact) for fact in self.about.get(draft, ()))

    def allows(self, draft: NodeDraft, name: str) -> bool:
        """True if the conditions on a draft that read such an attribute hold, as far as they are decided."""
        return all(self.holds_fact(fact) for fact in self.about.get(draft, ()) if name in fact.names)

    def holds_fact(self, fact: Demand) -> bool:
        """True if a condition holds, or is not decided."""
        holds, left, right = self._answer(fact.test, fact, _is_true)
        if holds or fact.exact:
            return bool(holds)
        assert isinstance(fact.test, Binary)
        return not self._differ(left, right, fact.test.left, fact)

    def _differ(self, found: Any, wanted: Any, side: Ast, fact: Demand) -> bool:
        """True if an attribute differs from what the user wrote, in canonical form, too; false if that is not known."""
        assert isinstance(side, Attribute)
        draft = self._draft(side.pattern, fact)
        spec = None if draft is None else TABLE.get(str(draft.op))
        if draft is None or spec is None or not draft.solved or side.name not in spec.attrs:
            return False
        types = tuple([operand.type for operand in draft.operands if operand is not None])
        beside = {} if not isinstance(side.pattern, Call) else {
            name: value.value for name, value in side.pattern.attrs.items() if isinstance(value, Literal)
        }  # fmt: skip
        full = spec.complete({**spec.own(draft.attrs), **beside, side.name: wanted}, types)
        return not same(found, full[side.name])


def _decided_value(node: Ast, scope: AttrScope, symbols: dict[Symbol, Any]) -> Any:
    """The value of an expression; ``None`` where it has none that is decided."""
    try:
        found = evaluated(node, scope, symbols)
    except NO_VALUE:
        return None
    return found if is_decided(found) else None


def _is_true(test: Ast, scope: AttrScope, symbols: dict[Symbol, Any]) -> tuple[bool, Any, Any]:
    """True if a condition holds or has no value; of an equation both sides, too."""
    try:
        if isinstance(test, Binary) and test.operator == "==":
            left, right = evaluated(test.left, scope, symbols), evaluated(test.right, scope, symbols)
            return same(left, right), left, right
        return evaluated(test, scope, symbols) is True, None, None
    except NO_VALUE:
        return True, None, None


def _parts_dtypes(fact: Demand) -> bool:
    """True if a condition is that dtypes are not equal."""
    return isinstance(fact.test, Unary) and fact.test.operator == "~" and "dtype" in fact.names


def _equation(left: Ast, right: Ast) -> Binary:
    return Binary("==", left, right)


@lru_cache(maxsize=4096)
def _equations(pattern: Pattern) -> tuple[tuple[Binary, bool], ...]:
    """The demands of a pattern on its own node, as equations, each with true if it is exact (see :class:`Demand`)."""
    found: list[tuple[Binary, bool]] = []
    guard = pattern.guard
    if guard is not None:
        if isinstance(guard.shape, tuple):
            for axis, size in enumerate(guard.shape):
                if size is not None:
                    found.append((_equation(Item(Attribute(pattern, "shape"), Literal(axis)), size), True))
            found.append((_equation(Attribute(pattern, "ndim"), Literal(len(guard.shape))), True))
        for name, node in (("shape", guard.shape), ("dtype", guard.dtype), ("ndim", guard.ndim)):
            if isinstance(node, Ast):
                found.append((_equation(Attribute(pattern, name), node), True))
    if isinstance(pattern, Call):
        found += [(_equation(Attribute(pattern, name), node), False) for name, node in pattern.attrs.items()]
    elif isinstance(pattern, GetItem) and pattern.number is not None:
        found.append((_equation(Attribute(pattern, "index"), pattern.number), False))
    elif isinstance(pattern, Const) and isinstance(pattern.literal, Ast):
        found.append((_equation(Attribute(pattern, "value"), pattern.literal), False))
    return tuple(found)


@lru_cache(maxsize=8192)
def _references(test: Ast) -> tuple[Pattern, ...]:
    return tuple(references(test))


@lru_cache(maxsize=8192)
def _names(test: Ast) -> frozenset[str]:
    """The names of the attributes that an expression reads."""
    return frozenset(part.name for part in parts(test) if isinstance(part, Attribute))


@lru_cache(maxsize=8192)
def _numbers(test: Ast) -> tuple[Any, ...]:
    """The numbers in an expression, those of tuples included."""
    found: list[Any] = []
    for part in parts(test):
        if isinstance(part, Literal):
            found += part.value if isinstance(part.value, tuple) else [part.value]
    return tuple(dict.fromkeys(n for n in found if isinstance(n, (int, float)) and not isinstance(n, bool)))
