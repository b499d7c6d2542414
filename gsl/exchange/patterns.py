"""The patterns of a rule: from the rule as it was read to its two sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gsl import attr, op, pat
from gsl.attr import Expr
from gsl.errors import GSLError
from gsl.exchange.shapes import Alike
from gsl.exchange.terms import ACTIVATIONS, CONSTANTS, FIELD, OPEN, VARIABLE, RuleTerm, Semantics, TermRule, walk
from gsl.pat import Pattern

SourceValue = Any
"""A number, or an expression that is one at a match."""


class Inexpressible(Exception):
    """The reason why a rule can't be imported."""


def asked(function: Callable[..., Any], title: str, *args: Any) -> Any:
    """The result of a function of the user. Inexpressible where it fails, so that one rule is refused, and not all."""
    try:
        return function(*args)
    except GSLError:
        raise
    except Exception as error:
        raise Inexpressible(f"{title} fails: {type(error).__name__}: {error}") from error


class PatternSides:
    """The data that the two sides of a rule share while its patterns are made."""

    def __init__(self, rule: TermRule, semantics: Semantics) -> None:
        self.semantics = semantics
        self.where: list[Any] = []
        """The conditions of the rule."""
        self.bound: dict[str, Expr] = {}
        """The values of the variables among the parameters."""
        self.alternatives: dict[str, pat.Alt] = {}
        """The alternative that tells which activation it is, for each variable activation."""
        self.alike = Alike()
        self.batches = Alike()
        """Groups of terms that have two dimensions or more, and the same dimensions before the last two."""
        self.matrix = RuleTerm("matrix", (), {}, rule.place)
        """Stands for every term that has two dimensions."""
        self.products: list[RuleTerm] = [self.matrix]
        """Operands of matrix products, so that all of their batch have two dimensions or more."""
        self.ranks: dict[RuleTerm, SourceValue] = {}
        """The number of dimensions of the variables where the rule tells it."""
        self.splits: dict[tuple[RuleTerm, Any], pat.Call] = {}
        """The splits of a source whose place is open, by what they split along which axis."""
        self.users: dict[RuleTerm, tuple[RuleTerm, int]] = {}
        """The first use of each term: by which term, at which position."""
        for term in walk(*rule.source, *rule.target):
            for position, operand in enumerate(term.operands):
                self.users.setdefault(operand, (term, position))
        numbers = {
            term.operands[1]
            for term in walk(*rule.source, *rule.target)
            if term.op == "smul" and term.operands[1].op == VARIABLE
        }
        self.leaves: dict[RuleTerm, Pattern] = {
            term: pat.Wildcard(ndim=0) if term in numbers else pat.Wildcard()
            for term in walk(*rule.source)
            if term.op == VARIABLE
        }


class PatternSide:
    """One side of a rule: makes the patterns of its terms."""

    def __init__(self, sides: PatternSides, is_source: bool) -> None:
        self.sides = sides
        self.semantics = sides.semantics
        self.is_source = is_source
        self.patterns: dict[RuleTerm, Pattern] = dict(sides.leaves)

    def demand(self, condition: Any) -> None:
        """Take a condition into the rule."""
        self.sides.where.append(condition)

    def join(self, first: RuleTerm, second: RuleTerm) -> None:
        """Note that two terms have one shape."""
        self.sides.alike.join(first, second)
        self.sides.batches.join(first, second)

    def provided(self, condition: Expr, made: Pattern, otherwise: str) -> Pattern:
        """A pattern of a target for a condition, which may be about the calls that the target has built."""
        return pat.Cond(attr.Cond(condition, True, otherwise), made, made)

    def outputs(self, terms: Sequence[RuleTerm], table: dict[str, MakePattern]) -> list[Pattern]:
        """The patterns of the outputs. Raises Inexpressible."""
        for term in walk(*terms):
            if term not in self.patterns:
                self.patterns[term] = self._make(term, table)
                if term.op not in CONSTANTS:
                    self.sides.alike.called(term)
        return [self.patterns[term] for term in terms]

    def _make(self, term: RuleTerm, table: dict[str, MakePattern]) -> Pattern:
        operands = [self.patterns[operand] for operand in term.operands]
        if term.op == FIELD:
            return operands[0][term.params["index"]]
        if term.op == OPEN:
            name = term.params["name"]
            meaning = self.semantics.operators.get(name)
            if meaning is None:
                raise Inexpressible(
                    f"{term.place}: {name} has no meaning here: give it as operators={{{name!r}: function of the "
                    "operands' patterns and the parameters}"
                )
            title = f"{term.place}: the meaning of {name}"
            found: Pattern = asked(meaning, title, tuple(operands), term.params["arguments"])
            return found
        made = table[term.op](self, term, *operands)
        return self._activated(made, term) if "act" in term.params else made

    # Parameters

    def value(self, term: RuleTerm, name: str) -> SourceValue | None:
        """The value of a parameter; ``None`` for a variable of the source that is not bound yet."""
        given = term.params[name]
        if not isinstance(given, str):
            return given
        if given in self.sides.bound:
            return self.sides.bound[given]
        if self.is_source:
            return None
        raise Inexpressible(f"{term.place}: the source does not say what ?{given} ({name}) is")

    def settle(self, term: RuleTerm, name: str, actual: Expr) -> SourceValue:
        """Bind or compare a parameter with the value that a call of the source has, and give its value."""
        value = self.value(term, name)
        if value is None:
            self.sides.bound[term.params[name]] = actual
            return actual
        self.demand(actual == value)
        return value

    def call(self, make: Callable[..., pat.Call], term: RuleTerm, operands: Sequence[Any], names: dict[str, Any],
             **fixed: Any) -> pat.Call:  # fmt: skip
        """A call with attributes that are given by parameters: by the name of one, or a tuple of names."""
        given: dict[str, Any] = {}
        later: list[tuple[str, Any]] = []
        for attribute, params in names.items():
            values = [self.value(term, name) for name in _several(params)]
            if any(value is None for value in values):
                later.append((attribute, params))
            else:
                given[attribute] = values[0] if isinstance(params, str) else tuple(values)
        made = make(*operands, **given, **fixed)
        for attribute, params in later:
            actual = getattr(made, attribute)
            for position, name in enumerate(_several(params)):
                self.settle(term, name, actual if isinstance(params, str) else actual[position])
        return made

    # Activations

    def _activated(self, made: Pattern, term: RuleTerm) -> Pattern:
        """The pattern of a product, followed by its activation."""
        act = term.params["act"]
        if isinstance(act, int):
            return applied(act, made)
        known = self.sides.alternatives.get(act)
        if not self.is_source:
            if known is None:
                raise Inexpressible(f"{term.place}: the source does not say what ?{act} (act) is")
            return pat.Match(known, [applied(number, made) for number in _ORDER])
        alternative = pat.Alt(*(applied(number, made) for number in _ORDER))
        if known is None:
            self.sides.alternatives[act] = alternative
        else:
            self.demand(attr.Match(alternative, _ORDER) == attr.Match(known, _ORDER))
        return alternative

    # Constants

    def context(self, term: RuleTerm) -> tuple[RuleTerm, int]:
        """The call that a constant takes its shape from, and its position there."""
        user, position = self.sides.users.get(term, (None, 0))
        while user is not None and user.op in ("enlarge", "enlarge_like") and position == 0:
            user, position = self.sides.users.get(user, (None, 0))
        if user is None:
            raise Inexpressible(f"{term.place}: {term.op} takes its shape from the context, and there is none")
        return user, position


_ORDER = (1, 2, 3, 0)
"""The activations as alternatives: none comes last, since it also matches where there is one."""

MakePattern = Callable[..., Pattern]
"""Makes the pattern of a term on a side, given the patterns of the operands."""


def applied(act: int, data: Pattern) -> Pattern:
    """The pattern of an activation by its number."""
    return {"sigmoid": op.Sigmoid, "relu": op.ReLU, "tanh": op.Tanh}[ACTIVATIONS[act]](data) if act else data


def _several(params: Any) -> tuple[str, ...]:
    return (params,) if isinstance(params, str) else params
