"""A Relax function as a table: its bindings in order, what each of them refers to, and what is bound to a variable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import ir, relax


class Function:
    """The bindings of a function's body. Nested bodies (branches, closures) are part of the binding they stand in."""

    def __init__(self, native: Any) -> None:
        self.native = native
        body = native.body
        self.blocks: list[Any] = list(body.blocks) if isinstance(body, relax.SeqExpr) else []
        self.result: Any = body.body if isinstance(body, relax.SeqExpr) else body
        self.bindings: list[Any] = []
        self.block_of: list[int] = []
        """The number of the block in which each binding stands."""
        self.place: dict[Any, int] = {}
        """The number of the binding of each variable."""
        for number, block in enumerate(self.blocks):
            for binding in block.bindings:
                self.place[binding.var] = len(self.bindings)
                self.bindings.append(binding)
                self.block_of.append(number)
        self.params: list[Any] = list(native.params)
        self.known = frozenset((*self.params, *self.place))
        self.uses: list[tuple[Any, ...]] = [self._used(binding.value) for binding in self.bindings]
        """The variables of the function to which each binding refers."""
        self.users: dict[Any, list[int]] = {}
        """The numbers of the bindings that refer to each variable."""
        for number, used in enumerate(self.uses):
            for var in used:
                self.users.setdefault(var, []).append(number)

    def _used(self, expr: Any) -> tuple[Any, ...]:
        return tuple([var for var in dict.fromkeys(relax.analysis.free_vars(expr)) if var in self.known])

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to a variable; ``None`` for a parameter, and for what is checked at run time."""
        place = self.place.get(var)
        if place is None or not isinstance(self.bindings[place], relax.VarBinding):
            return None
        return self.bindings[place].value

    @cached_property
    def used_by_result(self) -> tuple[Any, ...]:
        """The variables to which the result refers."""
        return self._used(self.result)


def with_value(binding: Any, value: Any, var: Any = None) -> Any:
    """A binding with another expression (and another variable), and the same source location."""
    var = binding.var if var is None else var
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty, binding.span)
    return relax.VarBinding(var, value, binding.span)


def replaced(expr: Any, instead: Mapping[Any, Any]) -> Any:
    """An expression with other expressions for some of its variables; the same object where none of them occurs."""
    if not instead:
        return expr
    if isinstance(expr, relax.Var):
        return instead.get(expr, expr)
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: instead.get(var, var)), order="post")
