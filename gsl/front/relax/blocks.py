"""The binding blocks of a new function: their bindings, the exchange of variables in them, and checks of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final

import tvm
from tvm import ir, relax
from tvm.relax.expr import _update_type
from tvm.sym import Analyzer

from gsl.front.relax.function import (
    VARIABLES,
    RelaxFunction,
    bound,
    call,
    dataflow_variable,
    free_variables,
    items,
    replaced,
    variable,
    with_value,
)
from gsl.graph import Node
from gsl.walk import reached

Bind = Callable[[Any, Any], None]
"""Takes a variable and the expression that is to be bound to it."""


class Blocks:
    """The blocks of an old function, filled anew from the first to the last."""

    def __init__(self, function: RelaxFunction) -> None:
        self.function = function
        self.old = function.blocks or [relax.DataflowBlock([])]
        self.contents: list[list[Any]] = [[] for _ in self.old]
        self.current = 0
        """The number of the block that is filled."""
        self.is_dataflow = isinstance(self.old[0], relax.DataflowBlock)
        """True if that is a dataflow block."""
        self._renamed: dict[Any, Any] = {}
        """The new variables that stand for old ones which can't be bound where they stand now."""

    def move(self, block: int) -> None:
        """Move to a later block."""
        if block > self.current:
            self.current = block
            self.is_dataflow = isinstance(self.old[block], relax.DataflowBlock)

    def variable(self, name: str, type: Any, *, visible: bool = False) -> Any:
        """A new variable for the block that is filled; ``visible`` for one that is part of the function's result."""
        return (dataflow_variable if self.is_dataflow and not visible else variable)(name, type, None)

    def again(self, var: Any) -> Any | None:
        """The variable itself, to be bound to another expression; ``None`` where it can't be bound."""
        return var if self._fits(var) else None

    def renamed(self, var: Any) -> Any:
        """The name of an old variable in the new function."""
        return self._renamed.get(var, var)

    def add(self, var: Any, expr: Any) -> None:
        """Bind a variable to an expression."""
        self.contents[self.current].append(bound(var, expr, expr.span))

    def keep(self, place: int, changed: Any = None) -> Any:
        """Bind an old variable again, to its old value or as ``changed`` binds it; the variable of the value."""
        # A binding that has no part in the view stays in the block in which it stood, if that is still being filled.
        if len(self.old) > 1:
            self.move(self.function.block_of(place))
        binding = self.function.bindings[place] if changed is None else changed
        own = var = self.function.vars[place]
        if not self._fits(var):
            var = self.variable(var.name, var.ty)
            self._renamed[own] = var
            binding = with_value(binding, binding.value, var)
        self.contents[self.current].append(binding)
        return var

    def _fits(self, var: Any) -> bool:
        return self.is_dataflow or type(var) is not relax.DataflowVar

    # ------------------------------------------------------------ the end

    def finish(self, result: Any) -> tuple[list[Any], Any]:
        """The new blocks and the function's result, with the variables that are seen outside of a block made visible.
        """
        visible = self._visible(result)
        blocks: list[Any] = []
        for number, (old, bindings) in enumerate(zip(self.old, self.contents)):
            new = [with_visible(binding, visible) for binding in bindings] if visible else bindings
            if not new and (old.bindings or not self.function.blocks):
                continue
            blocks.append(old if self._is_same(number, new) else type(old)(new, old.span))
        return blocks, replaced(result, visible)

    def _is_same(self, number: int, bindings: list[Any]) -> bool:
        """True if the bindings are those of the old block of this number."""
        first, end = (0, *(self.function.ends or (0,)))[number : number + 2]
        return end - first == len(bindings) and all(map(is_, self.function.bindings[first:end], bindings))

    def _visible(self, result: Any) -> dict[Any, Any]:
        """The variables of dataflow blocks that are used outside of them, each with a visible one to take its place."""
        found = dict.fromkeys(var for var in free_variables(result) if isinstance(var, relax.DataflowVar))
        block_of = {}
        if found or len(self.contents) > 1:
            block_of = {
                binding.var: number for number, bindings in enumerate(self.contents) for binding in bindings
                if isinstance(binding.var, relax.DataflowVar)
            }  # fmt: skip
        if len(self.contents) > 1:
            escaping = dict.fromkeys(
                var for number, bindings in enumerate(self.contents) for binding in bindings
                for var in relax.analysis.free_vars(binding.value) if block_of.get(var, number) != number
            )  # fmt: skip
            found = {**escaping, **found}
        return {var: relax.Var(var.name, var.ty) for var in found if var in block_of}


def with_visible(binding: Any, instead: Mapping[Any, Any]) -> Any:
    """A binding with other variables for some, such as visible ones for hidden ones."""
    value = binding.value
    if instead and any(var in instead for var in relax.analysis.free_vars(value)):
        value = replaced(value, instead)
    elif binding.var not in instead:
        return binding
    return with_value(binding, value, instead.get(binding.var))


# ---------------------------------------------------------------- checks


_MANY: Final = 8
"""One call in a function of its own takes so much longer to check than in the one where it stands."""


def check(module: Any, function: Any, fresh: Sequence[Any] | None, before: Any = None) -> None:
    """Raise TVM's error unless a module with this new function is well-formed.

    Where the module ``before`` has effects in what counts as pure, as importers of TVM write them, so may the new one.

    To derive the types of all calls once more takes nearly all the time of TVM's check. So that is done for ``fresh``
    alone, if given: calls such that every new one has the operator, attributes and types of one of them, where all
    others have those that they had before. All else is checked everywhere.
    """
    bindings = sum([len(block.bindings) for block in function.body.blocks])
    is_short = fresh is None or len(fresh) * _MANY > bindings
    calls = _alone(module, fresh) if fresh and not is_short else None
    try:
        relax.analysis.well_formed(module, check_ty=is_short)
    except Exception:
        if before is None or relax.analysis.check_well_formed(before):
            raise
        anywhere = tvm.transform.Sequential([relax.transform.ToNonDataflow(), relax.transform.RemovePurityChecking()])
        relax.analysis.well_formed(anywhere(module), check_ty=is_short)
    if calls is not None:
        relax.analysis.well_formed(calls)


def has_type(expr: Any, wanted: Any) -> bool:
    """True if TVM can prove that an expression has a type, for all sizes."""
    if isinstance(expr, relax.Tuple):
        return all(map(has_type, expr.fields, wanted.fields))
    return _is_same(expr.ty, wanted, Analyzer())


def _is_same(found: Any, wanted: Any, analyzer: Any) -> bool:
    if isinstance(found, ir.TupleType):
        return all(_is_same(one, other, analyzer) for one, other in zip(found.fields, wanted.fields))
    if not isinstance(found, relax.TensorType) or found.shape is None:
        return True
    return all(analyzer.can_prove_equal(a, b) for a, b in zip(found.shape.values, wanted.shape.values))


def _alone(module: Any, calls: Sequence[Any]) -> Any:
    """A module of a function of nothing but these calls, and of the functions that they call."""
    params: list[Any] = []
    bindings: list[Any] = []
    for expr in calls:
        instead = {var: relax.Var(var.name, var.ty) for var in relax.analysis.free_vars(expr) if type(var) in VARIABLES}
        params += instead.values()
        bindings.append(relax.VarBinding(relax.Var("call", expr.ty), replaced(expr, instead)))
    result = relax.Tuple([])
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    _update_type(body, result.ty)
    function = relax.Function(params, body, result.ty, is_pure=False)

    def called(var: Any) -> Any:
        return relax.analysis.all_global_vars(module[var]) if isinstance(module[var], relax.Function) else ()

    functions = {var: module[var] for var in reached(relax.analysis.all_global_vars(function), called)}
    return tvm.IRModule({"calls": function, **functions})


# ---------------------------------------------------------------- exchange of variables


class Swaps:
    """The variables of the transpositions with which attention was written."""

    def __init__(self) -> None:
        self.vars: set[Any] = set()
        self.joined: list[Any] = []
        """The transpositions that each stand for two."""

    def noting(self, node: Node, bind: Bind) -> Bind:
        """``bind`` for the parts of the expression that is written for a node, which are noted too."""
        if node.op != "nn.attention":
            return bind

        def noted(var: Any, expr: Any) -> None:
            if _axes(expr) is not None:
                self.vars.add(var)
            bind(var, expr)

        return noted

    def undone(self, blocks: Sequence[list[Any]], result: Any) -> tuple[list[list[Any]], Any]:
        """The blocks of bindings, and the result, without those that meet an inverse; of two others that meet, one
        stands for both."""
        if not self.vars:
            return list(blocks), result
        values = {
            binding.var: binding.value for bindings in blocks for binding in bindings
            if not isinstance(binding, relax.MatchCast)
        }  # fmt: skip
        instead: dict[Any, Any] = {}
        joined: dict[Any, Any] = {}
        first: set[Any] = set()
        """The first one of each pair, which may not be needed any more."""
        for var, value in values.items():
            outer = _axes(value)
            source = None if outer is None else value.args[0]
            if outer is None or source not in values or self.vars.isdisjoint((var, source)):
                continue
            below = joined.get(source, values[source])
            inner = _axes(below)
            if inner is None:
                continue
            axes, own = [inner[axis] for axis in outer], instead.get(below.args[0], below.args[0])
            if axes == sorted(axes):
                instead[var] = own
            elif source not in instead:
                joined[var] = _permuted(value, own, axes)
            first.add(source)
        self.joined += joined.values()
        kept = [
            [
                with_visible(with_value(binding, joined[binding.var]) if binding.var in joined else binding, instead)
                for binding in bindings if binding.var not in instead
            ]
            for bindings in blocks
        ]  # fmt: skip
        new = replaced(result, instead)
        needed = _used([new, *[binding.value for bindings in kept for binding in bindings]])
        unused = first - needed
        return [[binding for binding in bindings if binding.var not in unused] for bindings in kept], new


def _axes(expr: Any) -> list[int] | None:
    """The axes of a transposition; ``None`` for anything else."""
    name = getattr(expr.op, "name", None) if isinstance(expr, relax.Call) else None
    if name != "relax.permute_dims" or expr.attrs.axes is None:
        return None
    return [int(axis) for axis in items(expr.attrs.axes)]


def _permuted(old: Any, value: Any, axes: Sequence[int]) -> Any:
    """The transposition of another value, with other axes, that has the result of an old one."""
    return call(old.ty, old.op, [value], relax.op.permute_dims(value, axes).attrs, old.ty_args, old.span)


def _used(exprs: Iterable[Any]) -> set[Any]:
    return {var for expr in exprs for var in relax.analysis.free_vars(expr)}
