"""Whole numbers with symbols: polynomials, relations between them, the form in which code that reads attributes and
shapes takes them, and the outcomes of a case of a proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gsl.errors import GSLError

if TYPE_CHECKING:
    from gsl.prove.path import Path

T = TypeVar("T")

QUOTIENT, PICK, COMMON, LARGER, SMALLER, CODE = "quotient", "pick", "common", "max", "min", "code"
"""The operations that are no polynomials: a quotient rounded down, the place on an axis that may be of size 1, the size
of axes that are broadcast, the larger and the smaller of two numbers, and a dtype that follows from others."""
PREFIX, MEMBER = "prefix", "member"
"""Two more, of a sum of sizes: the sum of those before a number, and the number of the one that contains a place."""
RESULT = "dtype of"
"""The first words of one more: the dtype of a function's result, which is that of its operands if these are floats."""
SIZE, NUMBER = "size", "number"
"""The first words of operations that are a variable of the instance with a number: of least 1, and of least 0."""
DTYPES = (
    "", "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "uint16",
    "uint32", "uint64", "complex64", "complex128",
)  # fmt: skip
"""The dtypes by their code."""
_MOST_STEPS = 200
"""No division takes more."""


class once(Generic[T]):
    """A property that is computed at its first use, and then kept. Unlike functools' it takes no lock."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: Any = None) -> T:
        value = owner.__dict__[self.name] = self.compute(owner)
        return value


@dataclass(frozen=True, slots=True, eq=False)
class IntAtom:
    """A number that is no sum or product of others: a variable, or an operation with its operands."""

    name: str
    """Two atoms of one name are one."""
    operation: str = ""
    operands: tuple[Poly, ...] = ()
    least: int | None = None
    """A lower bound of a variable, if there is one."""
    size: Poly | None = None
    """For an index: it runs from 0 to ``size`` - 1."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntAtom) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __lt__(self, other: IntAtom) -> bool:
        return self.name < other.name

    def __str__(self) -> str:
        return self.name


Monomial = tuple[IntAtom, ...]
"""The atoms of a product, sorted, each as often as it is a factor."""


@dataclass(frozen=True, eq=False)
class Poly:
    """A polynomial: the coefficient of each monomial that occurs. Equal polynomials are equal objects."""

    terms: Mapping[Monomial, int] = field(default_factory=dict)

    @staticmethod
    def of(value: int | IntAtom) -> Poly:
        """The polynomial of a number or an atom."""
        if isinstance(value, IntAtom):
            return Poly({(value,): 1})
        return Poly({(): value} if value else {})

    @once
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __add__(self, other: Poly | int) -> Poly:
        found = dict(self.terms)
        for monomial, count in poly(other).terms.items():
            total = found.get(monomial, 0) + count
            if total:
                found[monomial] = total
            else:
                found.pop(monomial, None)
        return Poly(found)

    def __neg__(self) -> Poly:
        return Poly({monomial: -count for monomial, count in self.terms.items()})

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -poly(other)

    def __mul__(self, other: Poly | int) -> Poly:
        found: dict[Monomial, int] = {}
        for left, m in self.terms.items():
            for right, n in poly(other).terms.items():
                monomial = tuple(sorted(left + right)) if left and right else left or right
                found[monomial] = found.get(monomial, 0) + m * n
        return Poly({monomial: count for monomial, count in found.items() if count})

    @property
    def number(self) -> int | None:
        """The number that it is; ``None`` if it depends on something."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 and () in self.terms else None

    @once
    def atoms(self) -> frozenset[IntAtom]:
        """The atoms of its monomials."""
        return frozenset(atom for monomial in self.terms for atom in monomial)

    @once
    def inner(self) -> frozenset[IntAtom]:
        """The atoms of its monomials, and those inside of operations."""
        return self.atoms.union(*(part.inner for atom in self.atoms for part in atom.operands))

    def linear(self, atom: IntAtom) -> tuple[Poly, Poly] | None:
        """The pair a, b for which it is a · atom + b, where neither depends on the atom; ``None`` if there is none."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, count in self.terms.items():
            others = tuple(other for other in monomial if other != atom)
            if any(atom in part.inner for other in others for part in other.operands):
                return None
            if len(others) == len(monomial):
                rest[monomial] = count
            elif len(others) == len(monomial) - 1:
                factor[others] = count
            else:
                return None
        return Poly(factor), Poly(rest)

    def over(self, divisor: Poly) -> tuple[Poly, Poly]:
        """A quotient and a rest, as far as whole monomials go: ``self == quotient * divisor + rest``."""
        quotient, rest, left = Poly(), Poly(), self
        lead, by = max(divisor.terms.items(), key=_degree)
        for _ in range(_MOST_STEPS):
            if not left.terms:
                return quotient, rest
            monomial, count = max(left.terms.items(), key=_degree)
            part = _without(monomial, lead)
            if part is None or count % by:
                rest += Poly({monomial: count})
                left -= Poly({monomial: count})
                continue
            step = Poly({part: count // by})
            quotient += step
            left -= step * divisor
        return Poly(), self

    def replaced(self, value: Callable[[IntAtom], Poly | None]) -> Poly:
        """The polynomial with other values of its atoms; ``None`` leaves one as it is."""
        changes = {atom: new for atom in self.atoms if (new := value(atom)) is not None}
        if not changes:
            return self
        total = Poly()
        for monomial, count in self.terms.items():
            product = Poly({(): count})
            for atom in monomial:
                product *= changes.get(atom, Poly.of(atom))
            total += product
        return total

    @once
    def ordered(self) -> list[tuple[Monomial, int]]:
        """The terms as they are written: products of more factors first, then by name."""
        return sorted(self.terms.items(), key=lambda term: (-len(term[0]), [atom.name for atom in term[0]]))

    @once
    def text(self) -> str:
        """The polynomial as it is written."""
        parts: list[str] = []
        for monomial, count in self.ordered:
            product = "·".join(str(atom) for atom in monomial)
            size = "" if abs(count) == 1 and monomial else str(abs(count))
            sign = ("-" if count < 0 else "") if not parts else (" - " if count < 0 else " + ")
            parts.append(sign + "·".join(part for part in (size, product) if part))
        return "".join(parts) or "0"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def poly(value: Poly | int) -> Poly:
    """The polynomial of a number, or the polynomial itself."""
    return value if isinstance(value, Poly) else Poly.of(value)


def product(sizes: Any) -> Poly:
    """The product of polynomials."""
    total = Poly.of(1)
    for size in sizes:
        total *= size
    return total


EACH = IntAtom("§", least=0)
"""The number of any instance: what holds for it holds for all."""


PolyValues = Mapping[IntAtom, Poly]
"""Other values of atoms."""


def operation(name: str, *operands: Poly) -> Poly:
    """An operation that is no polynomial, of these operands."""
    written = ", ".join(operand.text for operand in operands)
    least = {SIZE: 1, NUMBER: 0}.get(name.partition(" ")[0])
    return Poly.of(IntAtom(f"{name}({written})", name, operands, least))


def replaced(p: Poly, values: PolyValues) -> Poly:
    """A polynomial with other values of atoms, also inside of operations."""

    def value(atom: IntAtom) -> Poly | None:
        if atom in values:
            return values[atom]
        if not atom.operands:
            return None
        operands = tuple(replaced(operand, values) for operand in atom.operands)
        if operands == atom.operands:
            return None
        return operation(atom.operation, *operands)

    return p.replaced(value)


def _degree(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return len(term[0]), [atom.name for atom in term[0]]


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """The monomial divided by another one; ``None`` if it is not divisible."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


Relation = tuple[str, Poly]
"""``(">=", p)``, ``("==", p)`` or ``("!=", p)``: how a polynomial compares with 0."""


class Impossible(Exception):
    """The case does not occur: its conditions contradict each other."""


class Unproved(Exception):
    """The proof fails; the text says why."""

    def __init__(self, reason: str, lacking: Relation | None = None, known: tuple[Any, ...] = ()) -> None:
        super().__init__(reason)
        self.lacking = lacking
        """The condition on sizes or attributes for want of which it fails, where there is one."""
        self.known = known


class ProofLimit(GSLError):
    """A proof that takes too many cases, or too long."""


def opposite(relation: Relation) -> Relation:
    """The relation that holds where another one does not."""
    kind, p = relation
    return (">=", -p - 1) if kind == ">=" else ("!=" if kind == "==" else "==", p)


def negations(relation: Relation) -> tuple[Relation, ...]:
    """The relations of which one holds where a relation does not; none of them is ``!=``."""
    kind, p = relation
    return ((">=", p - 1), (">=", -p - 1)) if kind == "==" else (opposite(relation),)


def written(relation: Relation) -> str:
    """A relation as it is written."""
    kind, p = relation
    left = Poly({m: n for m, n in p.terms.items() if n > 0})
    return f"{left} {kind} {left - p}"


NumberMethod = Callable[[Any, Any], Any]


def operator(operate: Callable[[Any, Any, Any], Any]) -> tuple[NumberMethod, NumberMethod]:
    """The methods of an operator of Python: for a number on its left, and for one on its right only."""
    return (
        lambda self, other: self._with(other, operate),
        lambda self, other: self._with(other, lambda context, a, b: operate(context, b, a)),
    )


class Whole:
    """A whole number of which an expression is known, as attributes and sizes are; comparing it makes cases."""

    __slots__ = ("path", "poly")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Poly, path: Path) -> None:
        self.poly = value
        self.path = path

    def __repr__(self) -> str:
        return str(self.path.reduce(self.poly))

    def _with(self, other: Any, operate: Callable[[Path, Poly, Poly], Poly]) -> Any:
        if isinstance(other, Whole):
            other = other.poly
        elif isinstance(other, bool) or not isinstance(other, int):
            return NotImplemented
        return whole(operate(self.path, self.poly, poly(other)), self.path)

    __add__, __radd__ = operator(lambda path, a, b: a + b)
    __sub__, __rsub__ = operator(lambda path, a, b: a - b)
    __mul__, __rmul__ = operator(lambda path, a, b: a * b)
    __floordiv__, __rfloordiv__ = operator(lambda path, a, b: path.quotient(a, b))
    __mod__, __rmod__ = operator(lambda path, a, b: path.remainder(a, b))

    def __neg__(self) -> Any:
        return whole(-self.poly, self.path)

    def _is(self, kind: str, other: Any, sign: int = 1, more: int = 0) -> Any:
        if isinstance(other, Whole):
            other = other.poly
        elif isinstance(other, bool) or not isinstance(other, int):
            return NotImplemented
        return self.path.decide((kind, (self.poly - other) * sign + more))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        if isinstance(other, (Whole, int)) and not isinstance(other, bool):
            return bool(self._is("==", other))
        if other is None or isinstance(other, (bool, str, tuple, list)):
            return False
        raise Unproved("it compares a whole number with one that may not be whole")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: Any) -> Any:
        return self._is(">=", other)

    def __gt__(self, other: Any) -> Any:
        return self._is(">=", other, more=-1)

    def __le__(self, other: Any) -> Any:
        return self._is(">=", other, -1)

    def __lt__(self, other: Any) -> Any:
        return self._is(">=", other, -1, -1)


def whole(value: Poly | int, path: Path) -> Any:
    """A number as code takes it: an int where it is known, else a :class:`Whole`."""
    if isinstance(value, int):
        return value
    value = path.reduce(value)
    return value.number if value.number is not None else Whole(value, path)


def number(value: Any) -> Poly:
    """The polynomial of an int or a :class:`Whole`. Unproved for anything else."""
    if isinstance(value, Whole):
        return value.poly
    if isinstance(value, int) and not isinstance(value, bool):
        return Poly.of(value)
    raise Unproved(f"{value!r} is no whole number")


def dtype_code(dtype: str | Whole) -> Poly:
    """The code of a dtype. Unproved for one that has none."""
    if isinstance(dtype, Whole):
        return dtype.poly
    if dtype not in DTYPES:
        raise Unproved(f"the dtype {dtype!r}")
    return Poly.of(DTYPES.index(dtype))


def difference(left: Any, right: Any) -> Poly | None:
    """One whole number less another one, where a dtype counts by its code; ``None`` if one of them is none."""
    sides = [int(side) if isinstance(side, float) and side.is_integer() else side for side in (left, right)]
    if any(side is None or isinstance(side, (bool, float, tuple, list)) for side in sides):
        return None
    first, second = [dtype_code(side) if isinstance(side, str) else number(side) for side in sides]
    return first - second
