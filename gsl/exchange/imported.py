"""The rules that were read, those that could not be expressed, and targets made of what functions give for a match."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gsl import pat
from gsl.attr.ast import Literal
from gsl.errors import ExchangeError, FrontEndError, PatternError, RefusedRulesWarning, nearest
from gsl.exchange.operators import OPERATORS
from gsl.exchange.patterns import Inexpressible, PatternSide, PatternSides, asked
from gsl.exchange.terms import RuleTerm, Semantics, TermRule, is_trivial, walk
from gsl.graph import CONST, GETITEM, PARAM, TUPLE, Graph, Node
from gsl.match import Match
from gsl.pat import Pattern
from gsl.rewrite import RuleSet, Subst
from gsl.spec import spec_of

ImportedCondition = Callable[[Mapping[str, Pattern]], Any]
"""Makes a further condition of a rule from the patterns of its variables by their names (``input_7``)."""
Conditions = Mapping[str, ImportedCondition]
SHOWN = 5
"""The largest number of refused rules that a warning names."""


class ImportedRules(RuleSet):
    """The rules of a file as a rule set. ``refused`` tells of each rule that is not among them why, by name."""

    def __init__(self, rules: Iterable[Subst], refused: Mapping[str, str]) -> None:
        super().__init__(rules)
        self.refused: Mapping[str, str] = MappingProxyType(dict(refused))

    def __repr__(self) -> str:
        return f"<ImportedRules: {len(self)} rules, {len(self.refused)} refused>"


def rule_set(
    read: Sequence[TermRule], semantics: Semantics, file: str, where: Conditions, strict: bool,
    unread: Mapping[str, str] = MappingProxyType({}),
) -> ImportedRules:  # fmt: skip
    """The rules as substitutions; ``unread`` tells why others could not be read, by name. Warns of refused rules, or
    raises ExchangeError if ``strict``.

    PatternError if ``where`` has a condition for a rule that does not exist.
    """
    names = [*(rule.name for rule in read), *unread]
    unknown = next((name for name in where if name not in names), None)
    if unknown is not None:
        raise PatternError(f"where: no rule of {file} is named {unknown!r}: {nearest(unknown, names)}")
    made: list[Subst] = []
    refused: dict[str, str] = {**unread}
    for rule in read:
        try:
            made.append(subst(rule, semantics, where.get(rule.name)))
        except Inexpressible as error:
            refused[rule.name] = str(error)
    if refused and strict:
        raise ExchangeError("\n".join(f"{name} can't be imported: {reason}" for name, reason in refused.items()))
    if refused:
        names = [*list(refused)[:SHOWN], *["…"] * (len(refused) > SHOWN)]
        total = len(read) + len(unread)
        warnings.warn(
            f"{len(refused)} of the {total} rules of {file} are not imported ({', '.join(names)}): `refused` tells why",
            RefusedRulesWarning,
            stacklevel=3,
        )
    return ImportedRules(made, refused)


def refusal(name: str, reason: object) -> ExchangeError:
    """The error of a rule of another system that GSL can't have."""
    return ExchangeError(f"{name} can't be taken over: {reason}")


def collected(
    given: Iterable[Any], name_of: Callable[[Any], str], make: Callable[[Any, str], Iterable[Subst]]
) -> ImportedRules:
    """The rules that a function makes of other systems' rules and their names, of which equal ones are numbered; what
    raises ExchangeError is refused."""
    made: list[Subst] = []
    refused: dict[str, str] = {}
    names: set[str] = set()
    for rule in given:
        name = name_of(rule)
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        name = next(each for each in itertools.chain([name], numbered) if each not in names)
        names.add(name)
        try:
            made += make(rule, name)
        except ExchangeError as error:
            refused[name] = str(error)
    return ImportedRules(made, refused)


def by_replacement(
    replacement: Callable[[Match], list[Pattern] | str], title: str
) -> tuple[Callable[[Match], bool | str], Callable[[Match], list[Pattern]]]:
    """The condition and the target of a rule by a function that gives the patterns for a match, or the reason why there
    are none. It calls functions of the user, which ``title`` names where they fail."""

    def found(match: Match) -> list[Pattern] | str:
        try:
            return replacement(match)
        except FrontEndError as error:
            return str(error)
        except Exception as error:  # whatever they read that is not there
            return f"{title} raises {type(error).__name__}: {error}"

    def check(match: Match) -> bool | str:
        patterns = found(match)
        return patterns if isinstance(patterns, str) else True

    def target(match: Match) -> list[Pattern]:
        patterns = found(match)
        assert not isinstance(patterns, str)
        return patterns

    return check, target


def subst(rule: TermRule, semantics: Semantics, condition: ImportedCondition | None = None) -> Subst:
    """The rule as a substitution. Raises Inexpressible with the reason why there is none."""
    if is_trivial(rule):
        raise Inexpressible(f"{rule.place}: both sides are the same graph, as an activation is an operator of its own")
    if not _is_connected(rule.source):
        raise Inexpressible(f"{rule.place}: what it replaces shares no tensor, and a source must be connected")
    sides = PatternSides(rule, semantics)
    try:
        source = PatternSide(sides, is_source=True).outputs(rule.source, OPERATORS)
        target = PatternSide(sides, is_source=False).outputs(rule.target, OPERATORS)
        if condition is not None:
            leaves = {term.params["name"]: leaf for term, leaf in sides.leaves.items()}
            sides.where.append(asked(condition, f"{rule.place}: the condition of {rule.name}", leaves))
        return Subst(source, target, where=sides.where, name=rule.name, doc=str(rule))
    except PatternError as error:
        raise Inexpressible(f"{rule.place}: {error}") from error


def _is_connected(outputs: tuple[RuleTerm, ...]) -> bool:
    """True if the outputs of a source are connected by the terms that they are made of."""
    reached, *rest = (set(walk(output)) for output in outputs)
    while rest:
        joined = [other for other in rest if other & reached]
        if not joined:
            return False
        reached = reached.union(*joined)
        rest = [other for other in rest if not other & reached]
    return True


def patterns_of(
    view: Graph, leaf: Callable[[Node], Pattern | None], *, with_attributes: bool = True
) -> list[Pattern]:
    """The outputs of a view as patterns, of which those that ``leaf`` gives for nodes are the leaves."""
    made: dict[Node, Pattern] = {}
    for node in view.nodes:
        found = leaf(node)
        made[node] = _made_of(node, made, with_attributes) if found is None else found
    return [made[output] for output in view.outputs]


def _made_of(node: Node, patterns: Mapping[Node, Pattern], with_attributes: bool) -> Pattern:
    """The pattern of a node of a view, on those of its operands."""
    operands = [patterns[operand] for operand in node.operands]
    if node.op in (PARAM, CONST):
        return pat.Const(node.attrs["value"])
    if node.op == TUPLE:
        return pat.Tuple(*operands)
    if node.op == GETITEM:
        return operands[0][node.attrs["index"]]
    spec = spec_of(node.op)
    if spec is None:
        attrs: Mapping[str, Any] = {name: Literal(value) for name, value in node.attrs.items()}
        return pat.Call(node.op, *operands, **attrs if with_attributes else {})
    return pat.Call(spec, *operands, **spec.own(node.attrs) if with_attributes else {})
