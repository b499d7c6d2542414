"""The binding blocks of a new function: their bindings, and the variables that are seen outside of them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

from tvm import relax

from gsl.front.relax.function import Function, replaced, with_value
from gsl.front.relax.objects import bound, dataflow_variable, variable


class Blocks:
    """The blocks of an old function, filled anew from the first to the last."""

    def __init__(self, function: Function) -> None:
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

    def variable(self, name: str, type: Any, *, seen: bool = False) -> Any:
        """A new variable for the block that is filled; ``seen`` for one that is part of the function's result."""
        return (dataflow_variable if self.is_dataflow and not seen else variable)(name, type, None)

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
        found = dict.fromkeys(var for var in relax.analysis.free_vars(result) if isinstance(var, relax.DataflowVar))
        home = {}
        if found or len(self.contents) > 1:
            home = {
                binding.var: number for number, bindings in enumerate(self.contents) for binding in bindings
                if isinstance(binding.var, relax.DataflowVar)
            }  # fmt: skip
        if len(self.contents) > 1:
            escaping = dict.fromkeys(
                var for number, bindings in enumerate(self.contents) for binding in bindings
                for var in relax.analysis.free_vars(binding.value) if home.get(var, number) != number
            )  # fmt: skip
            found = {**escaping, **found}
        return {var: relax.Var(var.name, var.ty) for var in found if var in home}


def with_visible(binding: Any, instead: Mapping[Any, Any]) -> Any:
    """A binding with visible variables for hidden ones."""
    value = binding.value
    if instead and any(var in instead for var in relax.analysis.free_vars(value)):
        value = replaced(value, instead)
    elif binding.var not in instead:
        return binding
    return with_value(binding, value, instead.get(binding.var))
