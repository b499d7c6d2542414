"""TENSAT's rules: pairs of s-expressions, or equations of calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, NamedTuple

from gsl.errors import ExchangeError, PatternError, nearest
from gsl.exchange.imported import Conditions, ImportedRules, rule_set
from gsl.exchange.terms import (
    CONSTANTS,
    FIELD,
    OPEN,
    SIGNATURES,
    VARIABLE,
    RuleTerm,
    Semantics,
    TermRule,
    problem,
    walk,
)

ARROW = "=>"
EQUALS = "=="
"""Stands between the sides of a rule that is written with calls, ``relu(relu(x))==relu(x)``."""
_TOKEN = re.compile(r"[()]|[^\s()]+")
_CALL_TOKEN = re.compile(r"[^\s(),]+\(|[),]|[^\s(),]+")
_CALLED = {
    "scalar_mul": "smul", "pool2d_avg": "poolavg", "pool2d_max": "poolmax", "const_iconv": "Iconv",
    "const_pool": "Cpool", "const_imm": "Imatmul", "const_one": "Iewmul",
}  # fmt: skip
"""Names of operators where rules are written with calls, and those that they have in s-expressions."""
_OF_IMAGES = ("conv2d", "pool", "enlarge")
_NUMBER = re.compile(r"-?\d+")
_DEPTH = {"(": 1, ")": -1}
_WORD = f"{ascii_letters}{digits}_"
_PERMUTATION = re.compile(r"\d+(_\d+)+")
FIELDS = ("split_0", "split_1")
KNOWN = (*(name for name in SIGNATURES if name != "enlarge_like"), *FIELDS)


def rules_from_tensat(
    path: str | PathLike[str], *, outputs: int | None = None, where: Conditions | None = None, strict: bool = False,
    **choices: Any,
) -> ImportedRules:  # fmt: skip
    """The rules of a file of TENSAT as a rule set; ``rules["tensat-17"]`` is that of line 17.

    ``outputs=2`` joins every two lines into one rule with two outputs, named by both (``tensat-3-4``). ``None`` finds
    out: the lines of a file are joined if some target has a variable that the source of its own line lacks.

    ``choices``, the fields of :class:`gsl.exchange.Semantics`, decide the questions that the file leaves open.
    ``where`` adds conditions: for the name of a rule, a function of the patterns of its variables by their names. Rules
    that can't be expressed are left out, with a warning, and listed with the reason in ``refused``; ``strict`` makes it
    an error.

    So are rules with a line that can't be read, with line and column. Raises ExchangeError for a file of which no line
    can. Rules may also be written with calls, ``relu(relu(x))==relu(x)``. A line may have several of those, one right
    after the other: the rules of such a file are numbered in order.
    """
    if outputs not in (None, 1, 2):
        raise PatternError(f"outputs: expected 1, 2 or None, found {outputs!r}")
    file = Path(fspath(path))
    semantics = Semantics.of(choices)
    read, refused = read_tensat(file, outputs, semantics.operators)
    if refused and strict:
        raise ExchangeError("\n".join(refused.values()))
    return rule_set(read, semantics, file.name, where or {}, strict, refused)


def read_tensat(
    file: Path, outputs: int | None = None, operators: Collection[str] = ()
) -> tuple[list[TermRule], dict[str, str]]:
    """The rules of a file as terms, and of those with a line that can't be read the reason, by name. Raises
    ExchangeError where no line can."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ExchangeError(f"{file.name}: byte {error.start}: this is no text in UTF-8") from None
    except OSError as error:
        raise ExchangeError(f"{file}: the file can't be read: {error.strerror}") from error
    return _rules(lines, file.name, outputs, operators)


class _Row(NamedTuple):
    """The text of a rule with one output, and its place."""

    number: int
    """The number by which the rule is known."""
    line: int
    column: int
    text: str


def _rows(lines: Sequence[str]) -> list[_Row]:
    """The rules of a file, numbered by their lines, or in order where a line has several."""
    found = [(number, *part) for number, line in enumerate(lines, 1) if line.strip() for part in _equations(line)]
    in_order = len({line for line, *_ in found}) < len(found)
    return [_Row(place if in_order else row[0], *row) for place, row in enumerate(found, 1)]


def _equations(line: str) -> Iterator[tuple[int, str]]:
    """The rules of a line with their columns: several, if calls follow each other without anything between them."""
    ends = [match.start() for match in re.finditer(EQUALS, line)]
    if ARROW in line or len(ends) < 2:
        yield 1, line
        return
    start = 0
    for left, right in pairwise(ends):
        cut = _end(line, left, right)
        yield start + 1, line[start:cut]
        start = cut
    yield start + 1, line[start:]


def _end(line: str, left: int, right: int) -> int:
    """The end of the call between two ``==``, behind which the call before the second one begins; found from the other
    side if the first one is not closed."""
    depth = 0
    for place in range(left, right):
        depth += _DEPTH.get(line[place], 0)
        if not depth and line[place] == ")":
            return place + 1
    depth = 0
    for place in range(right - 1, left, -1):
        depth -= _DEPTH.get(line[place], 0)
        if not depth and line[place] == "(":
            return left + len(EQUALS) + len(line[left + len(EQUALS) : place].rstrip(_WORD))
    return right


def _rules(
    lines: Sequence[str], file: str, outputs: int | None, operators: Collection[str]
) -> tuple[list[TermRule], dict[str, str]]:
    rows = _rows(lines)
    if not rows:
        raise ExchangeError(f"{file}: it has no rules")
    if outputs is None:
        alone = [_alone(_Parser(file, operators), row) for row in rows]
        closed = all(sides is None or _unbound([sides[0]], [sides[1]]) is None for sides in alone)
        outputs = 1 if closed or len(rows) % 2 else 2
    if len(rows) % outputs:
        raise ExchangeError(
            f"{file}: line {rows[-1].line}: a rule with two outputs has two lines, so their number must be even; "
            f"found {len(rows)}"
        )
    read: list[TermRule] = []
    refused: dict[str, ExchangeError] = {}
    for start in range(0, len(rows), outputs):
        own = rows[start : start + outputs]
        name = "-".join(["tensat", *(str(row.number) for row in own)])
        try:
            read.append(_rule(name, own, file, operators))
        except ExchangeError as error:
            refused[name] = error
    if not read:
        raise next(iter(refused.values()))
    return read, {name: str(error) for name, error in refused.items()}


def _alone(parser: _Parser, row: _Row) -> tuple[RuleTerm, RuleTerm] | None:
    """The two sides of a rule; ``None`` if it can't be read."""
    try:
        return parser.row(row)
    except ExchangeError:
        return None


def _rule(name: str, rows: Sequence[_Row], file: str, operators: Collection[str]) -> TermRule:
    """The rule of a line, or of as many as it has outputs. Raises ExchangeError."""
    parser = _Parser(file, operators)
    sides = [parser.row(row) for row in rows]
    source, target = [old for old, _ in sides], [new for _, new in sides]
    unbound = _unbound(source, target)
    if unbound is not None:
        raise ExchangeError(f"{unbound.place}: the source has no variable ?{unbound.params['name']}")
    if len(set(source)) < len(source):
        raise ExchangeError(f"{source[-1].place}: both lines replace the same expression")
    return TermRule(name, f"{file}: line {rows[0].line}", tuple(source), tuple(target))


def _unbound(source: Sequence[RuleTerm], target: Sequence[RuleTerm]) -> RuleTerm | None:
    """A variable of the target that the source lacks."""
    bound = set(walk(*source))
    return next((term for term in walk(*target) if term.op == VARIABLE and term not in bound), None)


@dataclass(slots=True)
class _Open:
    """An expression whose closing parenthesis is yet to come."""

    column: int
    items: list[tuple[int, Any]]
    """The items of the expression so far, with their columns."""


class _Parser:
    """Reads the rows of one rule. Equal expressions are one term, as they are one class of an e-graph."""

    def __init__(self, file: str, operators: Collection[str]) -> None:
        self.file = file
        self.operators = operators
        self.line = 0
        self.known: dict[Any, RuleTerm] = {}

    def error(self, column: int, problem: str) -> ExchangeError:
        """The error of a problem at a column of the present line."""
        return ExchangeError(f"{self._place(column)}: {problem}")

    def _place(self, column: int) -> str:
        return f"{self.file}: line {self.line}, column {column}"

    def row(self, row: _Row) -> tuple[RuleTerm, RuleTerm]:
        """The two sides of a rule."""
        self.line, column, text = row.line, row.column, row.text
        if ARROW not in text and text.count(EQUALS) == 1:
            old, new = text.split(EQUALS)
            rank = "4" if any(name in text for name in _OF_IMAGES) else "2"
            return self._called(old, column, rank), self._called(new, column + len(old) + len(EQUALS), rank)
        sides = text.split(ARROW)
        if len(sides) != 2:
            wrong = column + (len(text) if len(sides) == 1 else len(ARROW.join(sides[:2])))
            raise self.error(wrong, f"expected source{ARROW}target, found {len(sides) - 1} times {ARROW!r}")
        return self._side(sides[0], column), self._side(sides[1], column + len(sides[0]) + len(ARROW))

    def _called(self, text: str, column: int, rank: str) -> RuleTerm:
        """The term of one side that is written with calls. Names without parentheses are variables. A product that says
        no activation has none, and concatenated tensors have the rank that is given where nothing tells it."""
        tokens: list[tuple[int, str]] = []
        found = [(column + match.start(), match.group()) for match in _CALL_TOKEN.finditer(text)]
        found = [(place, token) for place, token in found if token != ","]
        for number, (place, token) in enumerate(found):
            name = _CALLED.get(token.rstrip("("), token.rstrip("("))
            told = number + 1 < len(found) and _NUMBER.fullmatch(found[number + 1][1])
            if token.endswith("("):
                tokens += [(place, "("), (place, name)]
                tokens += [(place, "0")] if name == "matmul" and not told else []
            elif token == ")":
                tokens.append((place, token))
            else:
                plain = _NUMBER.fullmatch(name) or name in CONSTANTS or name in self.operators
                tokens.append((place, name if plain else f"?{name}"))
                if len(tokens) > 1 and tokens[-2][1] == "concat" and not told:
                    tokens.append((place, rank))
        return self._side(text, column, tokens)

    def _side(self, text: str, column: int, tokens: Sequence[tuple[int, str]] | None = None) -> RuleTerm:
        """The term of one side, which begins at a column of the line."""
        stack: list[_Open] = [_Open(column, [])]
        end = column + len(text.rstrip())
        if tokens is None:
            tokens = [(column + match.start(), match.group()) for match in _TOKEN.finditer(text)]
        for place, token in tokens:
            if token == "(":
                stack.append(_Open(place, []))
            elif token != ")":
                stack[-1].items.append((place, token))
            elif len(stack) == 1:
                raise self.error(place, "there is no expression that this parenthesis closes")
            else:
                done = stack.pop()
                stack[-1].items.append((done.column, self._call(done)))
        if len(stack) > 1:
            raise self.error(end, f"the expression of column {stack[-1].column} is not closed")
        if len(stack[0].items) != 1:
            raise self.error(
                stack[0].items[1][0] if stack[0].items else end, f"expected one expression, found {len(stack[0].items)}"
            )
        return self._operand(*stack[0].items[0])

    def _operand(self, column: int, item: Any) -> RuleTerm:
        """The term of an item that stands in the place of an operand."""
        if isinstance(item, RuleTerm):
            return item
        if item.startswith("?") and len(item) > 1:
            return self._variable(item[1:], "tensor", column)
        if item in CONSTANTS or item in self.operators:
            return self._call(_Open(column, [(column, item)]))
        raise self.error(column, f"expected an expression or a variable ?name, found {item!r}")

    def _variable(self, name: str, kind: str, column: int) -> RuleTerm:
        term = self.known.setdefault((VARIABLE, name), RuleTerm(VARIABLE, (), {"name": name}, self._place(column)))
        before = self.known.setdefault(("kind", name, kind), term)
        if ("kind", name, "tensor") in self.known and ("kind", name, "parameter") in self.known:
            raise self.error(column, f"?{name} is a tensor in one place and a parameter in another")
        return before

    def _call(self, done: _Open) -> RuleTerm:
        if not done.items or not isinstance(done.items[0][1], str):
            raise self.error(done.column, "expected the name of an operator after the parenthesis")
        (column, name), items = done.items[0], done.items[1:]
        if name in self.operators:
            return self._further(name, items, done.column)
        if name not in KNOWN:
            raise self.error(
                column, f"unknown operator {name!r} (operators= gives the meaning of others): {nearest(name, KNOWN)}"
            )
        if name in FIELDS:
            return self._field(name, items, done.column)
        if name == "transpose":
            return self._transpose(items, done.column)
        if name == "Iconv" and len(items) == 1:
            items = items * 2
        signature = SIGNATURES[name]
        count = len(signature.params) + signature.operands
        if len(items) != count and not (signature.at_least and len(items) > count):
            wanted = [*signature.params, *["operand"] * signature.operands]
            raise self.error(
                done.column, f"{name} takes {count} items ({', '.join(wanted) or 'none'}), found {len(items)}"
            )
        first = len(signature.params)
        params: dict[str, Any] = {
            param: self._param(param, *item) for param, item in zip(signature.params, items[:first])
        }
        wrong = problem(params)
        if wrong is not None:
            raise self.error(done.column, f"{name}: {wrong}")
        if name == "split":
            params["parts"] = len(FIELDS)
        return self._term(name, [self._operand(*item) for item in items[first:]], params, done.column)

    def _param(self, param: str, column: int, item: Any) -> int | str:
        if isinstance(item, str) and _NUMBER.fullmatch(item):
            return int(item)
        if isinstance(item, str) and item.startswith("?") and len(item) > 1:
            self._variable(item[1:], "parameter", column)
            return item[1:]
        raise self.error(column, f"{param} is a number or a variable ?name, found {item!r}")

    def _field(self, name: str, items: list[tuple[int, Any]], column: int) -> RuleTerm:
        if len(items) == 2:  # with the axis, as in calls
            items = [(column, self._call(_Open(column, [(column, "split"), *items])))]
        if len(items) != 1 or not isinstance(items[0][1], RuleTerm) or items[0][1].op != "split":
            raise self.error(column, f"{name} takes one operand, an expression (split axis x)")
        return self._term(FIELD, [items[0][1]], {"index": FIELDS.index(name)}, column)

    def _transpose(self, items: list[tuple[int, Any]], column: int) -> RuleTerm:
        """``(transpose x)`` of a matrix, or with the axes as ``(transpose x 0_2_1)``."""
        axes: tuple[int, ...] = (1, 0)
        if len(items) == 2:
            place, text = items.pop()
            if not isinstance(text, str) or not _PERMUTATION.fullmatch(text):
                raise self.error(place, f"expected the axes of the result as in 0_2_1, found {text!r}")
            axes = tuple(map(int, text.split("_")))
            if sorted(axes) != list(range(len(axes))):
                raise self.error(place, f"{text} is no permutation of {len(axes)} axes")
        if len(items) != 1:
            raise self.error(column, "transpose takes one operand, and after it the axes where it is no matrix")
        return self._term("transpose", [self._operand(*items[0])], {"axes": axes}, column)

    def _further(self, name: str, items: list[tuple[int, Any]], column: int) -> RuleTerm:
        """An operator whose meaning the caller tells: its numbers are parameters by their position."""
        operands, arguments = [], {}
        for position, (place, item) in enumerate(items):
            if isinstance(item, str) and _NUMBER.fullmatch(item):
                arguments[position] = int(item)
            else:
                operands.append(self._operand(place, item))
        return self._term(OPEN, operands, {"name": name, "arguments": arguments}, column)

    def _term(self, op: str, operands: list[RuleTerm], params: dict[str, Any], column: int) -> RuleTerm:
        term = RuleTerm(op, operands, params, self._place(column))
        if op in CONSTANTS:
            return term  # what shape it has depends on where it stands
        return self.known.setdefault((op, *operands, repr(sorted(params.items()))), term)
