"""Facts about a tensor that follow from the way in which it was made: its rank, the tensors of its shape, the places of
cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gsl.exchange.terms import ELEMENT_WISE, FIELD, VARIABLE, RuleTerm

_RANK_4 = frozenset(("conv2d", "enlarge", "enlarge_like", "poolavg", "poolmax", "merge_gconv", "Iconv", "Cpool"))
_SAME_SHAPE = frozenset(("relu", "sigmoid", "tanh", "smul"))



class Alike:
    """Groups of terms that have one shape (or one batch), as far as the operators on the way say so."""

    def __init__(self) -> None:
        self._of: dict[RuleTerm, RuleTerm] = {}
        self._calls: dict[Any, RuleTerm] = {}

    def find(self, term: RuleTerm) -> RuleTerm:
        """The term that stands for all of the shape of this one; a variable where one of them is."""
        while (other := self._of.get(term, term)) is not term:
            term = other
        return term

    def join(self, first: RuleTerm, second: RuleTerm) -> None:
        """Note that two terms have one shape."""
        first, second = self.find(first), self.find(second)
        if first is not second:
            if second.op == VARIABLE:
                first, second = second, first
            self._of[second] = first

    def called(self, term: RuleTerm) -> None:
        """Note a call: calls with equal parameters of operands that have one shape have one shape."""
        params = {name: value for name, value in term.params.items() if name != "act"}
        key = (term.op, *(self.find(operand) for operand in term.operands), repr(params))
        self.join(self._calls.setdefault(key, term), term)


def rank(term: RuleTerm) -> int | Sequence[RuleTerm]:
    """The number of dimensions of a tensor, or the variables of which the largest has it; nothing if neither is known.

    The rank of a sum or a product is that of its operand with most dimensions.
    """
    variables: dict[RuleTerm, None] = {}
    work = [term]
    while work:
        term = work.pop()
        if term.op == VARIABLE:
            variables[term] = None
        elif term.op == "concat" or term.op == "transpose":
            known = term.params["ndim"] if term.op == "concat" else len(term.params["axes"])
            return known if isinstance(known, int) else ()
        elif term.op in _RANK_4:
            return 4
        elif term.op in _SAME_SHAPE or term.op in (FIELD, "split"):
            work.append(term.operands[0])
        elif term.op in ELEMENT_WISE or term.op == "matmul":
            work += term.operands
        else:
            return ()
    return tuple(variables)


def kernel(term: RuleTerm) -> RuleTerm:
    """A term with the same height and width as a kernel, as near to the variables as these are the same."""
    while term.op == "concat" or term.op in _SAME_SHAPE or term.op in ELEMENT_WISE or term.op == "merge_gconv":
        if term.op == "concat" and term.params["axis"] not in (0, 1):
            break
        term = term.operands[0]
    return term


def same_shape(term: RuleTerm) -> Iterator[RuleTerm]:
    """The term, and the term of which it is an element-wise function."""
    yield term
    while term.op in _SAME_SHAPE:
        term = term.operands[0]
        yield term


def origins(term: RuleTerm, axis: Any) -> list[tuple[Sequence[RuleTerm], Any]]:
    """The concatenated tensors behind an axis of a term, and the axis along which they were concatenated.

    There are several where a sum or another concatenation joins tensors that were each made so; none where the tensor
    was not made so.
    """
    found: list[tuple[Sequence[RuleTerm], Any]] = []
    work = [(term, axis)]
    while work:
        term, axis = work.pop()
        if term.op == "concat" and term.params["axis"] == axis:
            found.append((term.operands, axis))
        else:
            work.extend(reversed(_steps(term, axis)))
    return found


def _steps(term: RuleTerm, axis: Any) -> Sequence[tuple[RuleTerm, Any]]:
    """The operands, and the axis of each, to which an axis of a term corresponds."""
    op, operands = term.op, term.operands
    if op in _SAME_SHAPE:
        return [(operands[0], axis)]
    if op in ELEMENT_WISE or (op == "concat" and isinstance(axis, int) and isinstance(term.params["axis"], int)):
        return [(operand, axis) for operand in operands]
    if not isinstance(axis, int):
        return ()
    if op == "matmul":
        ranks = [known for known in map(rank, operands) if isinstance(known, int)]
        return [(operands[axis == ranks[0] - 1], axis)] if ranks else ()
    if op == "conv2d" and axis < 2:
        return [(operands[axis], 0)]
    if op in ("poolavg", "poolmax", "enlarge", "enlarge_like") and axis < 2:
        return [(operands[0], axis)]
    return [(operands[0], term.params["axes"][axis])] if op == "transpose" else ()
