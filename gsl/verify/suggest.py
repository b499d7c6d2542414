"""Missing side conditions: simple predicates that tell the failing instances of a rule from the passing ones."""

from __future__ import annotations

import ast as python
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product
from operator import eq, ge, le
from typing import Any, TypeGuard

from gsl import attr
from gsl.attr import Expr
from gsl.attr.evaluate import Evaluator
from gsl.errors import EvaluationError, GSLError, PatternError
from gsl.graph import Graph, Node, TensorType
from gsl.match import Match
from gsl.match.bindings import MatchScope
from gsl.pat import Alt, And, Call, Const, GetItem, Not, Pattern, Seq, Tuple, Variadic
from gsl.rewrite import Subst
from gsl.spec import TABLE, spec_of
from gsl.verify.mutate import rebuilt
from gsl.verify.solve import FLOATS

MOST_COMPARED = 80
"""The largest number of instances of either kind that are looked at."""
NEARLY = 0.75
"""An equation of attributes of calls of one operator, which is what rules lack most often, goes before conditions that
hold on more passing instances if it holds on at least this share of the most: the instances are a sample. So do single
conditions before equations of numbers, and before two of which one has to hold."""
FEW = 0.5
"""Where no single condition holds on so large a share of the passing instances, two that only together exclude all that
fails are tried, too."""
LEAST_PASSING = 3
"""A condition that hardly an instance satisfies is none."""
MOST_NUMBERS, MOST_OF_THREE = 24, 10
"""So many sizes and numbers in attributes are compared with each other, and so many of them in threes."""
MOST_PAIRED = 400
"""So many conditions are tried as one of two that have to hold."""
MOST_EITHER = 12
"""So many conditions are tried as one of two."""


@dataclass(frozen=True, eq=False)
class SideCondition:
    """A predicate on a match, as an expression and as it would be written."""

    expr: Expr
    text: str
    cost: int
    """The complexity of a condition; of two conditions that tell the same, the simpler one is taken."""

    def holds(self, match: Match) -> bool:
        try:
            return Evaluator(MatchScope(match.bindings, ())).value(self.expr.ast) is True
        except (EvaluationError, ValueError):
            return False


def suggestions(
    rule: Subst, failing: Sequence[Graph], passing: Sequence[Graph]
) -> Iterator[tuple[Subst, Expr, str, Mapping[str, str]]]:
    """Rules with a further condition under which none of the failing instances match, the weakest first, after
    equations of attributes that are nearly as weak."""
    bad, good = list(_matches(rule, failing[-MOST_COMPARED:])), list(_matches(rule, passing[-MOST_COMPARED:]))
    if not bad or len(good) < LEAST_PASSING:
        return
    names = names_of(rule, bad[0])
    conditions, equations = list(_conditions(bad[0], good, names)), list(_of_numbers(bad, good, names))
    telling = _telling(conditions, bad, good)
    found = [(sum(g), c) for c, g in telling]
    most = max([count for count, _ in found], default=0)
    numbers = _telling(equations, bad, good)
    others = [*_either([*telling, *numbers]), *((sum(g), c) for c, g in numbers)]
    found += [(count, condition) for count, condition in others if NEARLY * count >= most]
    if most < FEW * len(good):
        found += _pairs([*conditions, *equations], bad, good)
        most = max([count for count, _ in found], default=0)
    found.sort(key=lambda item: (item[1].cost > 1 or item[0] < NEARLY * most, -item[0], item[1].cost))
    told = legend(rule, names)
    for _, condition in found:
        try:
            yield rebuilt(rule, more=[condition.expr]), condition.expr, condition.text, told
        except PatternError:
            continue


def _telling(
    conditions: Iterable[SideCondition], bad: Sequence[Match], good: Sequence[Match]
) -> list[tuple[SideCondition, list[bool]]]:
    """The conditions that hold on no failing instance, each with on which of the passing ones it holds: on enough."""
    rows = [(c, [c.holds(m) for m in good]) for c in conditions if not any(map(c.holds, bad))]
    return [row for row in rows if sum(row[1]) >= LEAST_PASSING]



def _either(rows: Sequence[Any]) -> Iterator[tuple[int, SideCondition]]:
    """Two conditions of which each excludes all that fails, and of which one holds where the other one does not."""
    for (a, good_a), (b, good_b) in combinations(sorted(rows, key=lambda row: -sum(row[1]))[:MOST_EITHER], 2):
        count = sum(x or y for x, y in zip(good_a, good_b))
        if count > max(sum(good_a), sum(good_b)):
            yield count, SideCondition(a.expr | b.expr, f"({a.text}) | ({b.text})", a.cost + b.cost + 10)


def _pairs(
    conditions: Iterable[SideCondition], bad: Sequence[Match], good: Sequence[Match]
) -> Iterator[tuple[int, SideCondition]]:
    """Two conditions that only together exclude all that fails."""
    rows = [(c, _where(c, bad), _where(c, good)) for c in conditions]
    useful = [row for row in rows if row[1].bit_count() < len(bad) and row[2].bit_count() >= LEAST_PASSING]
    useful.sort(key=lambda row: (row[1].bit_count(), -row[2].bit_count(), row[0].cost))
    for (a, bad_a, good_a), (b, bad_b, good_b) in combinations(useful[:MOST_PAIRED], 2):
        count = (good_a & good_b).bit_count()
        if not bad_a & bad_b and count >= LEAST_PASSING:
            yield count, SideCondition(a.expr & b.expr, f"({a.text}) & ({b.text})", a.cost + b.cost + 10)


def _where(condition: SideCondition, matches: Sequence[Match]) -> int:
    """The matches on which a condition holds, as the bits of a number."""
    return sum(condition.holds(match) << place for place, match in enumerate(matches))


def _matches(rule: Subst, graphs: Sequence[Graph]) -> Iterator[Match]:
    for graph in graphs:
        try:
            match = next(rule.match(graph), None)
        except GSLError:
            continue
        if match is not None:
            yield match


# Candidates


ReadNumber = tuple[Expr, str, tuple[int | float | None, ...]]
"""A size, a literal, or a number in an attribute: as an expression, as text, and what it is in each instance."""


def _of_numbers(
    bad: Sequence[Match], good: Sequence[Match], names: Mapping[Pattern, str]
) -> Iterator[SideCondition]:
    """Values and bounds of numbers, divisibility, and equations of two or three: those of no failing instance and of
    most passing ones."""
    numbers = list(islice(_numbers([*bad, *good], names), MOST_NUMBERS))

    def tells(values: Iterable[Any]) -> bool:
        held = iter(values)
        return not any(islice(held, len(bad))) and 2 * sum(map(bool, held)) >= len(good)

    for own, text, values in numbers:
        whole = [value for value in values if _is_whole(value)]
        if len(whole) == len(values):
            ((usual, _),) = Counter(whole[len(bad) :]).most_common(1)
            least, most = max(whole[: len(bad)]) + 1, min(whole[: len(bad)]) - 1
            for relation, compare, number, cost in (("==", eq, usual, 6), (">=", ge, least, 8), ("<=", le, most, 8)):
                if tells(compare(value, number) for value in whole):
                    yield SideCondition(compare(own, number), f"{text} {relation} {number}", cost)
        for rest in (0, 1):
            if tells(v is not None and v % 2 == rest for v in values):
                yield SideCondition(own % 2 == rest, f"{text} % 2 == {rest}", 5)
    for (f, a, left), (g, b, right) in permutations(numbers, 2):
        if tells(x is not None and y and x % y == 0 for x, y in zip(left, right)):
            yield SideCondition(f % g == 0, f"{a} % {b} == 0", 6)
        for times in (1, 2):
            both = [(x, y) for x, y in list(zip(left, right))[len(bad) :] if x is not None and y is not None]
            rests: Counter[int | float] = Counter(x - times * y for x, y in both)
            for offset, _ in rests.most_common(1):
                if tells(x is not None and y is not None and x - times * y == offset for x, y in zip(left, right)):
                    more = f" + {offset}" if offset > 0 else f" - {-offset}" if offset else ""
                    factor = "" if times == 1 else f"{times} * "
                    yield SideCondition(f == times * g + offset, f"{a} == {factor}{b}{more}", 7)
    few = numbers[:MOST_OF_THREE]
    for ((f, a, ones), (g, b, others)), (h, c, sums) in product(permutations(few, 2), few):
        for times in (1, 2):
            rows = zip(ones, others, sums)
            if tells(x is not None and y is not None and times * x + y == z for x, y, z in rows):
                factor = "" if times == 1 else f"{times} * "
                yield SideCondition(times * f + g == h, f"{factor}{a} + {b} == {c}", 8)


def _numbers(matches: Sequence[Match], names: Mapping[Pattern, str]) -> Iterator[ReadNumber]:
    """The sizes, the literals and the numbers in attributes that differ among instances."""
    for pattern, name in names.items():
        nodes = [match.get(pattern) for match in matches]
        if nodes[0] is None:
            continue
        if isinstance(pattern, Const):
            literals = tuple([None if node is None else _literal(node) for node in nodes])
            if len(set(literals)) > 1:
                yield pattern.value, f"{name}.value", literals
        keys = ["shape"] if isinstance(nodes[0].type, TensorType) else []
        spec = spec_of(nodes[0].op)
        keys += spec.own_attrs if spec is not None else []
        for key in keys:
            own = getattr(pattern, key)
            found = [None if node is None else node.shape if key == "shape" else node.attrs.get(key) for node in nodes]
            if all(_is_whole(value) for value in found):
                columns = [(own, f"{name}.{key}", found)]
            else:
                rank = max((len(value) for value in found if isinstance(value, tuple)), default=0)
                columns = [
                    (own[place], f"{name}.{key}[{place}]",
                     [v[place] if isinstance(v, tuple) and place < len(v) else None for v in found])
                    for place in range(min(rank, 4))
                ]  # fmt: skip
            for expr, text, values in columns:
                if len(set(values)) > 1 and all(value is None or _is_whole(value) for value in values):
                    yield expr, text, tuple(values)


def _literal(node: Node) -> int | float | None:
    """The number that a literal is, if it is one."""
    value = node.attrs.get("value")
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _conditions(failing: Match, passing: Sequence[Match], names: Mapping[Pattern, str]) -> Iterator[SideCondition]:
    bound = [(pattern, name) for pattern, name in names.items() if failing.get(pattern) is not None]
    tensors = [(p, n) for p, n in bound if isinstance(failing[p].type, TensorType)]
    for (p, a), (q, b) in combinations(bound, 2):
        yield from _alike(failing, p, a, q, b)
    for (p, a), (q, b) in combinations(tensors, 2):
        yield from _same_types(p, a, q, b)
    for pattern, name in bound:
        yield from _values(failing, passing, pattern, name)
    for pattern, name in tensors:
        yield from _types(failing, pattern, name)
    for variadic in failing.plan.patterns:
        if isinstance(variadic, Variadic) and variadic in failing.plan.known:
            yield from _instances(variadic, names.get(variadic, "variadic"))


def _alike(match: Match, p: Pattern, a: str, q: Pattern, b: str) -> Iterator[SideCondition]:
    """Equal attributes of two calls."""
    left, right = match[p], match[q]
    if left.op not in TABLE or right.op not in TABLE:
        return
    own = TABLE[str(left.op)].own_attrs
    if left.op == right.op and len(own) > 1:
        every = attr.all([getattr(p, name) == getattr(q, name) for name in own])
        yield SideCondition(every, f"attr.all([{', '.join(f'{a}.{name} == {b}.{name}' for name in own)}])", 8)
    for name in TABLE[str(left.op)].attrs:
        if name in right.attrs:
            cost = 1 if left.op == right.op else 3
            yield SideCondition(getattr(p, name) == getattr(q, name), f"{a}.{name} == {b}.{name}", cost)
    if left.op == right.op == "transpose":
        yield SideCondition(p.axes == attr.Inverse(q.axes), f"{a}.axes == attr.Inverse({b}.axes)", 3)


def _same_types(p: Pattern, a: str, q: Pattern, b: str) -> Iterator[SideCondition]:
    for name, cost in (("shape", 2), ("dtype", 3), ("ndim", 2)):
        yield SideCondition(getattr(p, name) == getattr(q, name), f"{a}.{name} == {b}.{name}", cost)
    for part, text in ((0, "0"), (1, "1"), (-1, "-1"), (slice(2, None), "2:"), (slice(1, None), "1:"),
                       (slice(None, -1), ":-1"), (slice(None, 1), ":1")):  # fmt: skip
        yield SideCondition(p.shape[part] == q.shape[part], f"{a}.shape[{text}] == {b}.shape[{text}]", 5)


def _values(match: Match, passing: Sequence[Match], pattern: Pattern, name: str) -> Iterator[SideCondition]:
    """Values of single attributes."""
    node = match[pattern]
    if isinstance(pattern, Const):
        yield SideCondition(pattern.value > 0, f"{name}.value > 0", 3)
        yield SideCondition(pattern.value != 0, f"{name}.value != 0", 3)
        yield SideCondition(pattern.value <= 1, f"{name}.value <= 1", 4)
        yield SideCondition(pattern.value == 1, f"{name}.value == 1", 5)
    if node.op not in TABLE:
        return
    for key, spec in TABLE[str(node.op)].attrs.items():
        own = getattr(pattern, key)
        values = [other[pattern].attrs.get(key) for other in passing if other.get(pattern) is not None]
        value = node.attrs[key]
        if isinstance(value, float):
            yield SideCondition(own > 0, f"{name}.{key} > 0", 3)
            yield SideCondition(own >= 0, f"{name}.{key} >= 0", 3)
            yield SideCondition(own <= 1, f"{name}.{key} <= 1", 4)
        if isinstance(value, tuple):
            yield from _tuples(own, f"{name}.{key}", spec.derive is not None)
        else:
            for item in list(dict.fromkeys(values))[:8]:
                if item is not None:
                    is_default = spec.derive is None and item == spec.default
                    yield SideCondition(own == item, f"{name}.{key} == {item!r}", 3 if is_default else 4)
    if "axis" in node.attrs and isinstance(node.attrs["axis"], int) and node.ndim is not None:
        yield SideCondition(pattern.axis == pattern.ndim - 1, f"{name}.axis == {name}.ndim - 1", 4)
    if "padding" in node.attrs and "kernel_size" in node.attrs:
        n = attr.Len(pattern.kernel_size)
        text = f"{name}.padding[:attr.Len({name}.kernel_size)] == {name}.padding[attr.Len({name}.kernel_size):]"
        yield SideCondition(pattern.padding[:n] == pattern.padding[n:], text, 6)


def _tuples(own: Expr, text: str, derived: bool) -> Iterator[SideCondition]:
    yield SideCondition(attr.max(own) == 1, f"attr.max({text}) == 1", 4)
    if not derived:
        yield SideCondition(attr.max(own) == 0, f"attr.max({text}) == 0", 4)
        yield SideCondition(own == attr.Range(attr.Len(own)), f"{text} == attr.Range(attr.Len({text}))", 5)
        yield SideCondition(attr.Len(own) == 1, f"attr.Len({text}) == 1", 5)


def _types(match: Match, pattern: Pattern, name: str) -> Iterator[SideCondition]:
    for rank in range(6):
        yield SideCondition(pattern.ndim == rank, f"{name}.ndim == {rank}", 6)
    for rank in (1, 2):
        yield SideCondition(pattern.ndim >= rank, f"{name}.ndim >= {rank}", 6)
    for axis in (0, 1, -1):
        yield SideCondition(pattern.shape[axis] == 1, f"{name}.shape[{axis}] == 1", 7)
    yield SideCondition(attr.In(pattern.dtype, FLOATS), f"attr.In({name}.dtype, {FLOATS!r})", 5)
    dtype = match[pattern].dtype
    for unfit in dict.fromkeys(("bool", *([dtype] if dtype is not None and dtype not in FLOATS else []))):
        yield SideCondition(pattern.dtype != unfit, f'{name}.dtype != "{unfit}"', 5)


def _instances(variadic: Variadic, name: str) -> Iterator[SideCondition]:
    """Conditions on all instances of a variadic."""
    yield SideCondition(variadic.length == 2, f"{name}.length == 2", 6)
    yield SideCondition(variadic.length == 1, f"{name}.length == 1", 6)
    for template in variadic.templates:
        names = ["shape", "dtype", "ndim"]
        if isinstance(template, Call):
            names += sorted(template.readable() or ())
        for key in dict.fromkeys(names):
            i = attr.Symbol()
            alike = getattr(variadic(template, i), key) == getattr(variadic(template, 0), key)
            each = attr.Variadic(alike, variadic.length, index=i)
            text = f"attr.all(attr.Variadic(lambda i: {name}(t, i).{key} == {name}(t, 0).{key}, {name}.length))"
            yield SideCondition(attr.all(each), text, 5)


# Names


def legend(rule: Subst, names: Mapping[Pattern, str]) -> dict[str, str]:
    """For each name, the pattern for which it stands: where it was written, and, if others were there, too, its place
    in the source."""
    alike = Counter(f"{pattern!r} ({pattern.location})" for pattern in names)
    users = {operand: (user, place) for user in reversed(rule.plan.patterns) if isinstance(user, Call)
             for place, operand in enumerate(user.operands or ())}  # fmt: skip
    found = {}
    for pattern, name in names.items():
        text = f"{pattern!r} ({pattern.location})"
        if alike[text] > 1 and pattern in users:
            user, place = users[pattern]
            text += f", operand {place} of {repr(user).partition('(')[0]}"
        found[name] = text
    return found


def names_of(rule: Subst, match: Match | None = None) -> dict[Pattern, str]:
    """A name for each pattern that is bound to one node: as it is called in the user's code, if that can be seen."""
    found: dict[Pattern, str] = {}
    taken: set[str] = set()
    for pattern in rule.plan.patterns:
        if isinstance(pattern, (Alt, And, Not, Seq)) or pattern in rule.plan.scopes:
            continue
        base = _assigned(pattern, rule.plan.patterns) or _base(pattern, match)
        name, number = base, 0
        while name in taken:
            number += 1
            name = f"{base}{number}"
        taken.add(name)
        found[pattern] = name
    return found


def _base(pattern: Pattern, match: Match | None) -> str:
    if isinstance(pattern, (Tuple, GetItem, Variadic)):
        return type(pattern).__name__.lower()
    node = None if match is None else match.get(pattern)
    if isinstance(pattern, Call) and node is not None:
        return str(node.op).rpartition(".")[2]
    return {"Param": "w", "Const": "c"}.get(type(pattern).__name__, "x")


def _assigned(pattern: Pattern, patterns: Sequence[Pattern]) -> str | None:
    """The variable to which the line that made the pattern assigns it, if it makes no other or makes it last."""
    place: Any = pattern.location
    line = linecache.getline(place.file, place.line).strip()
    try:
        statements = python.parse(line).body
    except SyntaxError:
        return None
    there = [other for other in patterns if other.location == place]
    match statements:
        case [python.Assign([python.Name(name), *_], value)] if there[-1] is pattern and not _makes_rule(value):
            return name
    return None


def _makes_rule(value: python.expr) -> bool:
    """True if what is assigned is the rule itself, and not a pattern of it."""
    name = python.unparse(value.func) if isinstance(value, python.Call) else ""
    return name.rpartition(".")[2] in ("Subst", "RuleSet")
