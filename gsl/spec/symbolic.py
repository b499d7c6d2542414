"""Symbolic sizes for a run on tensors without data: sympy expressions as torch's SymInts, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gsl.graph.dim import SymDim, dim
from gsl.graph.types import TensorType, TupleType, Type

_LARGE: Final = 1_000_000
_SMALL: Final = 2
"""The sizes of symbols when torch has to compare are the primes after these, which rarely equal anything else."""


def has_symbols(value: Any) -> bool:
    """True if a symbolic size occurs in a value: a type, an attribute, or a collection of them."""
    return next(_symbolic(value), None) is not None


def _symbolic(value: Any) -> Iterator[SymDim]:
    match value:
        case SymDim():
            yield value
        case TensorType():
            yield from _symbolic(value.shape)
        case TupleType():
            yield from _symbolic(value.fields)
        case tuple():
            for item in value:
                yield from _symbolic(item)
        case dict():
            yield from _symbolic(tuple(value.values()))


class SymbolSizes:
    """A SymInt for each symbol that occurs in the types and attributes of a call.

    What is no polynomial in symbols with integer coefficients, like a quotient, is taken as a symbol of its own: what
    holds for all sizes holds for it too.
    """

    def __init__(self, operands: Any, attrs: Any, *, small: bool = False, reverse: bool = False) -> None:
        import sympy
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.env = ShapeEnv(duck_shape=False)
        self._sympy = sympy
        self._ints: dict[Any, Any] = {}
        self._back: dict[Any, Any] = {}
        dims = [*_symbolic(operands), *_symbolic(attrs)]
        atoms = sorted({atom for d in dims for atom in self._atoms(d.expr)}, key=str)
        hint = _SMALL if small else _LARGE
        for number, atom in enumerate(reversed(atoms) if reverse else atoms):
            hint = sympy.nextprime(hint)
            source = ConstantSource(f"size{number}")
            symbol = self.env.create_symbol(int(hint), source, DimDynamic.DYNAMIC, None)
            self._ints[atom] = self.env.create_symintnode(symbol, hint=int(hint), source=source)
            self._back[symbol] = atom

    def _atoms(self, expr: Any) -> set[Any]:
        if expr.is_Integer:
            return set()
        if self._is_polynomial(expr):
            return {atom for part in expr.args for atom in self._atoms(part)}
        return {expr}

    def _is_polynomial(self, expr: Any) -> bool:
        if expr.is_Pow:
            return bool(expr.exp.is_Integer and expr.exp > 0)
        # A fraction among the factors: the product is an integer, and its parts are not.
        return bool(expr.is_Add or expr.is_Mul) and not any(
            number.is_Rational and not number.is_Integer for number in self._sympy.preorder_traversal(expr)
        )

    def _evaluate(self, expr: Any) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in self._ints:
            return self._ints[expr]
        if expr.is_Pow:
            return self._evaluate(expr.base) ** int(expr.exp)
        parts = [self._evaluate(part) for part in expr.args]
        value = parts[0]
        for part in parts[1:]:
            value = value + part if expr.is_Add else value * part
        return value

    def concrete(self, value: Any) -> Any:
        """A value with a SymInt for each symbolic size."""
        match value:
            case SymDim():
                return self._evaluate(value.expr)
            case tuple():
                return tuple(map(self.concrete, value))
            case dict():
                return {name: self.concrete(item) for name, item in value.items()}
            case _:
                return value

    def symbolic(self, found: Type) -> Type:
        """A type with the symbolic sizes of the call for the SymInts."""
        if isinstance(found, TupleType):
            return TupleType(tuple([None if field is None else self.symbolic(field) for field in found.fields]))
        return TensorType(tuple([self._dim(size) for size in found.shape]), found.dtype)

    def _dim(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        return from_torch(size.expr if isinstance(size, SymDim) else size.node.expr, self._back)

    @property
    def specialised(self) -> str:
        """The conditions under which the run took sizes for equal or for numbers, if it did."""
        found = [guard.expr for guard in self.env.guards if guard.expr.func is self._sympy.Eq]
        equalities = [equality for equality in found if not self._holds_unless_empty(equality)]
        if not equalities and not self.env.replacements:
            return ""
        pairs = equalities or [self._sympy.Eq(a, b) for a, b in self.env.replacements.items()]
        return self._text(pairs)

    def _holds_unless_empty(self, equality: Any) -> bool:
        """True if two sides are equal for all tensors with elements, as strides are: they are products of max(1, size).

        How a tensor lies in memory is no part of its type.
        """
        from torch.utils._sympy.functions import Max

        def is_stride(part: Any) -> bool:
            return isinstance(part, Max) and len(part.args) == 2 and 1 in part.args

        def size(part: Any) -> Any:
            return next(arg for arg in part.args if arg != 1)

        if not equality.has(Max):
            return False
        left, right = (side.replace(is_stride, size) for side in equality.args)
        return bool(self._sympy.expand(left - right) == 0)

    @property
    def compared(self) -> str:
        """All conditions that the run decided by the sizes, if there are any."""
        return self._text([guard.expr for guard in self.env.guards])

    def _text(self, conditions: list[Any]) -> str:
        return ", ".join([str(condition.xreplace(self._back)) for condition in conditions])

    def named(self, text: str) -> str:
        """A message with the names of the symbols of the call for those of the run."""
        names = {str(symbol): str(atom) for symbol, atom in self._back.items()}
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)


def whatever_sizes(name: str, run: Callable[[SymbolSizes], Type], operands: Any, attrs: Any) -> Type:
    """The type of a call with symbolic sizes, which has to be the same for all sizes; ``run`` tells it for some.

    Raises ValueError, besides those of ``run``, if the type depends on the sizes.
    """

    def found_with(**regime: bool) -> tuple[Type, SymbolSizes]:
        sizes = SymbolSizes(operands, attrs, **regime)
        try:
            found = run(sizes)
        except ValueError as error:
            raise ValueError(sizes.named(str(error))) from None
        if sizes.specialised:
            raise ValueError(f"{name}: the type depends on the sizes at run time: {sizes.specialised}")
        return sizes.symbolic(found), sizes

    found, sizes = found_with()
    if not sizes.compared:
        return found
    # Torch compared sizes. Either that was a check, and it does not matter, or it chose between results: then
    # sizes that compare otherwise have another type, or are specialised on.
    for regime in ({"small": True}, {"reverse": True}, {"small": True, "reverse": True}):
        try:
            other, _ = found_with(**regime)
        except ValueError:
            continue
        if other != found:
            raise ValueError(f"{name}: the type depends on the sizes at run time: {sizes.compared}")
    return found


def from_torch(expr: Any, symbols: Mapping[Any, Any] | None = None) -> Any:
    """The dimension of the expression of a SymInt, with its symbols replaced; torch's division becomes sympy's."""
    import sympy
    from torch.utils._sympy import functions as f

    def rebuilt(part: Any) -> Any:
        if not part.args:
            return (symbols or {}).get(part, part)
        args = [rebuilt(arg) for arg in part.args]
        if isinstance(part, (f.FloorDiv, f.CleanDiv)):
            return sympy.floor(sympy.expand(args[0] / args[1]))
        if isinstance(part, (f.Mod, f.PythonMod)):
            return sympy.Mod(*args)
        if isinstance(part, (f.Max, f.Min)):
            return (sympy.Max if isinstance(part, f.Max) else sympy.Min)(*args)
        return part.func(*args)

    return dim(rebuilt(expr))
