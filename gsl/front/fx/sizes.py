"""Symbolic sizes in the arguments of new calls: native nodes that compute them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx.fakes import Fakes, torch_expression
from gsl.front.fx.values import dim_of
from gsl.graph import Node, SymDim, TensorType
from gsl.graph.types import dim


class ComputedSizes:
    """The sizes that a new native graph has computed so far, and how further ones are."""

    def __init__(self, fakes: Fakes, create: Callable[..., fx.Node], dialect: str) -> None:
        self._fakes = fakes
        self._create = create
        self._dialect = dialect
        self._computed: dict[Any, fx.Node] = {}
        self._axes: dict[Any, tuple[fx.Node, int]] = {}
        self._noted: list[fx.Node] = []
        """The nodes that have not been asked yet which sizes they give; most graphs never need to know."""

    def note(self, nodes: Iterable[fx.Node]) -> None:
        """Note native nodes of the new graph, from which sizes may be known: their values, or axes of them."""
        self._noted += nodes

    def _learn(self, node: fx.Node) -> None:
        value = self._fakes.values.value(node)
        if isinstance(value, torch.SymInt):
            size = dim_of(value)
            if isinstance(size, SymDim):
                self._computed.setdefault(size.expr, node)
            return
        type = self._fakes.values.type(node)
        if isinstance(type, TensorType):
            for axis, size in enumerate(type.shape):
                if isinstance(size, SymDim):
                    self._axes.setdefault(size.expr, (node, axis))

    def write(self, size: SymDim, node: Node) -> Any:
        """A native node whose value is that dimension, or a number. FrontEndError if no tensor tells it."""
        for noted in self._noted:
            self._learn(noted)
        self._noted.clear()
        try:
            return self._expression(dim(size.expr), node)
        except _NotComputable as reason:
            raise FrontEndError(
                f"{node.name}: the dimension {size} can't be computed from the sizes of the tensors before it: {reason}"
            ) from None

    def _expression(self, size: Any, node: Node) -> Any:
        if not isinstance(size, SymDim):
            return size
        expr = size.expr
        if expr in self._computed:
            return self._computed[expr]
        if expr in self._axes:
            tensor, axis = self._axes[expr]
            new = self._size_of(tensor, axis, node)
        else:
            new = self._compute(expr, node)
        self._fakes.set(new, self._fakes.size(size))
        self._computed[expr] = new
        return new

    def _size_of(self, tensor: fx.Node, axis: int, node: Node) -> fx.Node:
        if self._dialect == "aten":
            return self._create("call_function", torch.ops.aten.sym_size.int, (tensor, axis), {}, "sym_size", node)
        return self._create("call_method", "size", (tensor, axis), {}, "size", node)

    def _compute(self, expr: Any, node: Node) -> fx.Node:
        import sympy

        expr = torch_expression(expr)
        function: Any = _function(expr)
        arguments = expr.args
        if isinstance(expr, sympy.Pow):
            base, exponent = arguments
            if not (exponent.is_Integer and exponent > 0):
                raise _NotComputable(f"{expr} is not a product of sizes")
            function, arguments = operator.mul, (base,) * int(exponent)
        if function is None:
            raise _NotComputable(f"no tensor has the size {expr}")
        if any(argument.is_Rational and not argument.is_Integer for argument in arguments):
            raise _NotComputable(f"{expr} is not a sum or a product of integers")
        if isinstance(expr, sympy.Mul):
            arguments = self._factors(expr) or arguments
        values = [self._expression(dim(argument), node) for argument in arguments]
        result: fx.Node = functools.reduce(lambda a, b: self._binary(function, a, b, node), values)
        return result

    def _factors(self, expr: Any) -> tuple[Any, Any] | None:
        """A product as that of a known size and a rest with fewer symbols, if some symbol alone is not known."""
        import sympy

        if all(symbol in self._computed or symbol in self._axes for symbol in expr.free_symbols):
            return None
        for known in (*self._computed, *self._axes):
            rest = sympy.cancel(expr / known)
            if known.free_symbols and rest.free_symbols < expr.free_symbols and sympy.denom(rest) == 1:
                return known, rest
        return None

    def _binary(self, function: Any, left: Any, right: Any, node: Node) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return function(left, right)
        new = self._create("call_function", function, (left, right), {}, "", node)
        values = [self._fakes.values.value(side) if isinstance(side, fx.Node) else side for side in (left, right)]
        self._fakes.set(new, function(*values) if all(isinstance(v, (int, torch.SymInt)) for v in values) else None)
        return new


class _NotComputable(Exception):
    """A size does not follow from those that are known; the text says why."""


def _function(expr: Any) -> Any:
    """The Python operator of a sympy expression of two or more arguments."""
    import sympy
    from torch.utils._sympy import functions

    table = {
        sympy.Add: operator.add,
        sympy.Mul: operator.mul,
        functions.FloorDiv: operator.floordiv,
        functions.CleanDiv: operator.floordiv,
        functions.PythonMod: operator.mod,
        functions.Mod: operator.mod,
        functions.Max: torch.sym_max,
        functions.Min: torch.sym_min,
    }
    return table.get(expr.func)
