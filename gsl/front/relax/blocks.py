"""The binding blocks of a new function: what stands in them, and which variables are seen outside of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from gsl.front.relax.function import Function, replaced, with_value


class Blocks:
    """The blocks of an old function, filled anew from the first to the last."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.old = function.blocks or [relax.DataflowBlock([])]
        self.contents: list[list[Any]] = [[] for _ in self.old]
        self.current = 0
        """The number of the block that is filled."""
        self.made: set[Any] = set()
        """The variables that the old function does not have."""
        self._renamed: dict[Any, Any] = {}
        """The new variables that stand for old ones which can't be bound where they stand now."""

    def move(self, block: int) -> None:
        """Go on to a later block."""
        self.current = max(self.current, block)

    @property
    def is_dataflow(self) -> bool:
        return isinstance(self.old[self.current], relax.DataflowBlock)

    def variable(self, name: str, type: Any) -> Any:
        """A new variable for the block that is filled."""
        var = relax.DataflowVar(name, type) if self.is_dataflow else relax.Var(name, type)
        self.made.add(var)
        return var

    def again(self, var: Any) -> Any | None:
        """The variable itself, to be bound to another expression; ``None`` where it can't be bound."""
        return var if self._fits(var) else None

    def renamed(self, var: Any) -> Any:
        """What an old variable is called in the new function."""
        return self._renamed.get(var, var)

    def add(self, var: Any, expr: Any) -> None:
        """Bind a variable to an expression."""
        self.contents[self.current].append(relax.VarBinding(var, expr, expr.span))

    def keep(self, binding: Any, place: int) -> Any:
        """Bind an old variable again; the variable that has the value."""
        # A binding that has no part in the view stays in the block in which it stood, if that is still being filled.
        self.move(self.function.block_of[place])
        var = binding.var
        if not self._fits(var):
            var = self.variable(var.name, var.ty)
            self._renamed[binding.var] = var
            binding = with_value(binding, binding.value, var)
        self.contents[self.current].append(binding)
        return var

    def _fits(self, var: Any) -> bool:
        return self.is_dataflow or not isinstance(var, relax.DataflowVar)

    # ------------------------------------------------------------ the end

    def finish(self, result: Any) -> tuple[list[Any], Any]:
        """The new blocks and the function's result, with the variables that are seen outside of a block made visible.

        A new variable becomes a visible one; an old one stays, and gets a visible one beside it.
        """
        home = {
            binding.var: number for number, bindings in enumerate(self.contents) for binding in bindings
            if isinstance(binding.var, relax.DataflowVar)
        }  # fmt: skip
        visible = {var: relax.Var(var.name, var.ty) for var in self._escaping(result, home)}
        blocks: list[Any] = []
        for number, (old, bindings) in enumerate(zip(self.old, self.contents)):
            instead = {var: new for var, new in visible.items() if var in self.made or home[var] != number}
            new = [_with_visible(binding, instead) for binding in bindings]
            shown = [var for var in visible if home[var] == number and var not in instead]
            new += [relax.VarBinding(visible[var], var) for var in shown]
            if not new and (old.bindings or not self.function.blocks):
                continue
            same = len(new) == len(old.bindings) and all(a.same_as(b) for a, b in zip(new, old.bindings))
            blocks.append(old if same else type(old)(new, old.span))
        return blocks, replaced(result, visible)

    def _escaping(self, result: Any, home: Mapping[Any, int]) -> list[Any]:
        """The variables of dataflow blocks that are used outside of them."""
        found: dict[Any, None] = {}
        for number, bindings in enumerate(self.contents):
            for binding in bindings:
                for var in relax.analysis.free_vars(binding.value):
                    if home.get(var, number) != number:
                        found[var] = None
        found.update((var, None) for var in relax.analysis.free_vars(result) if var in home)
        return list(found)


def _with_visible(binding: Any, instead: Mapping[Any, Any]) -> Any:
    """A binding with visible variables for hidden ones."""
    value = binding.value
    if instead and any(var in instead for var in relax.analysis.free_vars(value)):
        value = replaced(value, instead)
    elif binding.var not in instead:
        return binding
    return with_value(binding, value, instead.get(binding.var))
