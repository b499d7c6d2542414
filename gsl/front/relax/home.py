"""The places of a function's weights: variables whose values are known, or constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.relax.expr import _update_type

from gsl.front.relax.handle import Leaf
from gsl.front.relax.loaded import Loaded
from gsl.front.tvm.tensors import to_tvm
from gsl.graph import PARAM, Node


class Home:
    """The parameters of a new function.

    ``values`` are the known ones by name. With ``free``, new weights become parameters and unused ones go; otherwise
    the parameters stay, and new weights become constants.
    """

    def __init__(self, loaded: Loaded, values: Mapping[str, Any], free: bool) -> None:
        self.loaded = loaded
        self.values = dict(values)
        self.free = free
        self.added: list[Any] = []
        self._names: set[str] = set()
        """The names of new parameters."""
        self._made: dict[Node, Any] = {}

    def weight(self, node: Node) -> Any:
        """The expression of a weight or a literal tensor."""
        leaf = node.native
        if isinstance(leaf, Leaf) and leaf.shape is None:
            return leaf.expr
        if node not in self._made:
            tensor = to_tvm(node.attrs["value"])
            variable = self.free and leaf is None and node.op == PARAM
            self._made[node] = self._variable(node, tensor) if variable else relax.const(tensor, str(tensor.dtype))
        return self._made[node]

    def _variable(self, node: Node, tensor: Any) -> Any:
        base = node.name or "weight"
        name, number, old = base, 0, self.loaded.function.all_names
        while name in self._names or name in old:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        self.values[name] = tensor
        var = relax.Var(name, relax.TensorType([int(size) for size in tensor.shape], str(tensor.dtype)))
        self.added.append(var)
        return var

    def function(self, blocks: list[Any], result: Any) -> Any:
        """The new function; the old one if nothing has changed."""
        function = self.loaded.function
        native = function.native
        unchanged = len(blocks) == len(function.blocks) and all(a.same_as(b) for a, b in zip(blocks, function.blocks))
        if unchanged and result.same_as(function.result):
            return native
        body = relax.SeqExpr(blocks, result, native.body.span)
        body = relax.BlockBuilder().normalize(body) if result.ty.is_missing() else body
        _update_type(body, result.ty)
        params = [*self._needed(blocks, result), *self.added]
        # A function may be declared to return something else than its result, as nothing at all.
        declared = result.ty == native.ret_ty or function.result.ty != native.ret_ty
        return relax.Function(
            params, body, native.ret_ty if declared else None, native.is_pure, native.attrs, native.span
        )

    def _needed(self, blocks: list[Any], result: Any) -> list[Any]:
        """The old parameters without the weights that nothing uses any more."""
        function = self.loaded.function
        if not self.free:
            return function.params
        used = set(relax.analysis.free_vars(result))
        for block in blocks:
            for binding in block.bindings:
                used.update(relax.analysis.free_vars(binding.value))
        params: list[Any] = []
        for var in function.params:
            was_used = var in function.users or var in function.used_by_result
            if var.name in self.values and was_used and var not in used:
                del self.values[var.name]
            else:
                params.append(var)
        return params
