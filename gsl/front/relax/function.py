"""A Relax function as a table: its bindings in order, what each of them refers to, and what is bound to a variable."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import ir, relax

from gsl.front.relax.objects import VARIABLES, call, has_types, items


class Function:
    """The bindings of a function's body. Nested bodies (branches, closures) are part of the binding they stand in.

    Every variable has one Python object here, so that a dictionary finds it without asking TVM whether two are the
    same.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        body = native.body
        self.blocks: list[Any] = list(body.blocks) if isinstance(body, relax.SeqExpr) else []
        self.bindings: list[Any] = []
        self.vars: list[Any] = []
        """The variable of each binding."""
        self.values: list[Any] = []
        """The expression of each binding."""
        self.args: list[tuple[Any, ...] | None] = []
        """For each binding, the arguments of a call of nothing but variables and constants; ``None`` for all others."""
        self.ops: list[Any] = []
        """The operator of each of these calls."""
        self.ends: list[int] = []
        """For each block, the number of the first binding behind it."""
        self.params: list[Any] = items(native.params)
        self._plain = {var.__chandle__(): var for var in self.params}
        """The object of each variable and constant, by the address of what it stands for."""
        self._one: dict[int, Any] = {}
        """The object of each operator, and of all else, in the same way."""
        for block in self.blocks:
            self._read(items(block.bindings))
            self.ends.append(len(self.bindings))
        self.place = {var: number for number, var in enumerate(self.vars)}
        """The number of the binding of each variable."""
        self.result: Any = self.own(body.body if isinstance(body, relax.SeqExpr) else body)
        self.known = frozenset((*self.params, *self.vars))
        self._uses: dict[int, tuple[Any, ...]] = {}

    def _read(self, bindings: list[Any]) -> None:
        """Add bindings to the table. This is done for every binding of a function, and each look at TVM takes time."""
        plain, one = self._plain, self._one
        for binding in bindings:
            var, value = binding.var, binding.value
            plain[var.__chandle__()] = var
            op, args = None, None
            if type(value) is ir.Call and type(binding) is relax.VarBinding:
                op = value.op
                if type(op) is ir.Op and not has_types(value):
                    op = one.setdefault(op.__chandle__(), op)
                    args = self._arguments(value.args)
            self.vars.append(var)
            self.values.append(value)
            self.args.append(args)
            self.ops.append(None if args is None else op)
        self.bindings += bindings

    def _arguments(self, array: Any) -> tuple[Any, ...] | None:
        plain = self._plain
        args = []
        for arg in items(array):
            address = arg.__chandle__()
            known = plain.get(address)
            if known is None:
                if type(arg) not in VARIABLES and type(arg) is not ir.GenericConst:
                    return None
                known = plain[address] = arg
            args.append(known)
        return tuple(args)

    def own(self, expr: Any) -> Any:
        """The one object of an expression."""
        address = expr.__chandle__()
        found = self._plain.get(address)
        return self._one.setdefault(address, expr) if found is None else found

    def block_of(self, place: int) -> int:
        """The number of the block in which a binding stands."""
        return bisect_right(self.ends, place)

    def uses(self, place: int) -> tuple[Any, ...]:
        """The variables of the function to which a binding refers."""
        found = self._uses.get(place)
        if found is None:
            args = self.args[place]
            found = self._uses[place] = self._used(self.values[place]) if args is None else self._among(args)
        return found

    @cached_property
    def users(self) -> Mapping[Any, list[int]]:
        """The numbers of the bindings that refer to each variable."""
        found: dict[Any, list[int]] = {}
        for number in range(len(self.bindings)):
            for var in self.uses(number):
                found.setdefault(var, []).append(number)
        return found

    @cached_property
    def names(self) -> Mapping[Any, str]:
        """The names of the variables."""
        return {var: var.name for var in (*self.params, *self.vars)}

    def _among(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The variables of the function among the arguments of a call."""
        known = self.known
        return tuple([var for var in (args if len(args) == 1 else dict.fromkeys(args)) if var in known])

    def _used(self, expr: Any) -> tuple[Any, ...]:
        return self._among([self.own(var) for var in relax.analysis.free_vars(expr)])

    def lookup(self, var: Any) -> Any:
        """The expression that is bound to a variable; ``None`` for a parameter, and for what is checked at run time."""
        place = self.place.get(var)
        if place is None or not isinstance(self.bindings[place], relax.VarBinding):
            return None
        return self.values[place]

    @cached_property
    def used_by_result(self) -> tuple[Any, ...]:
        """The variables to which the result refers."""
        return self._used(self.result)

    @cached_property
    def has_spans(self) -> bool:
        """Whether any binding has a source location."""
        return any(part.span is not None for part in (*self.bindings, *self.values))

    def with_args(self, place: int, instead: Mapping[Any, Any]) -> Any:
        """The expression of a binding with other expressions for some of its variables."""
        value, args = self.values[place], self.args[place]
        if args is None:
            return replaced(value, instead)
        return call(value.op, [instead.get(arg, arg) for arg in args], value.attrs, value.ty_args, value.ty, value.span)


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
