"""The fake values of a new native graph, kept where the old graph kept them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from gsl.front.fx.values import META_KEYS, UNKNOWN, Values, dim_of, type_of_value
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec.symbolic import has_symbols


class Fakes:
    """What is known of the nodes of a new graph, and how it is told."""

    def __init__(self, native: fx.Graph, values: Values) -> None:
        self.old = values
        self.values = Values()
        """The values of the new graph."""
        self.key = next((key for key in META_KEYS if any(key in node.meta for node in native.nodes)), None)
        self.has_tensor_meta = any("tensor_meta" in node.meta for node in native.nodes)
        self.mode = _mode(native, values)
        self._copied: dict[fx.Node, fx.Node] = {}
        self._moved: dict[fx.Node, bool] = {}
        """The nodes of the new graph that may lie otherwise in memory than what stood there in the old one, and
        whether it is known how."""

    def carry(self, node: fx.Node, copy: fx.Node) -> None:
        """Keep what is known of a node that was copied."""
        self._copied[copy] = node
        if node in self.old.known:
            self.values.known[copy] = self.old.known[node]

    def have_moved(self, old: fx.Node, new: Any) -> bool:
        """True if an argument may lie otherwise in memory than the one whose place it takes."""
        if isinstance(new, (tuple, list)):
            return True
        if not isinstance(new, fx.Node) or (new not in self._moved and self._copied.get(new) is old):
            return False
        before, after = _strides(self.old.value(old)), _strides(self.values.value(new))
        return not self._moved.get(new, True) or before is None or before != after

    def move(self, copy: fx.Node) -> None:
        """Take note that a copied call has arguments that lie otherwise in memory, and so may its result."""
        value = self._run(copy)
        known = value is not UNKNOWN and type_of_value(value) == type_of_value(self.values.value(copy))
        self._moved[copy] = known
        if known:
            self.set(copy, value)

    def record(self, node: fx.Node, type: Type | None) -> None:
        """Work out the value of a new call, and store it; ``type`` is what the view says about it."""
        value = self._run(node)
        self._moved[node] = value is not UNKNOWN and type_of_value(value) == type
        if type is not None and type_of_value(value) != type:
            # The meaning of the operator decides; only the strides are lost.
            value = self.of_type(type, self._device(node))
        self.set(node, value)
        if self.mode is None and self.has_tensor_meta and isinstance(type, TensorType) and not has_symbols(type):
            shape: Any = type.shape
            self._set_tensor_meta(node, torch.empty(shape, dtype=getattr(torch, type.dtype), device="meta"))

    def set(self, node: fx.Node, value: Any) -> None:
        """Store the value of a new node where the old graph has its values."""
        if self.key is not None:
            node.meta[self.key] = None if value is UNKNOWN else value
        elif value is not UNKNOWN:
            self.values.known[node] = value
        if self.has_tensor_meta and isinstance(value, torch.Tensor):
            self._set_tensor_meta(node, value)

    @staticmethod
    def _set_tensor_meta(node: fx.Node, value: torch.Tensor) -> None:
        from torch.fx.passes.shape_prop import _extract_tensor_metadata

        node.meta["tensor_meta"] = _extract_tensor_metadata(value)

    def of_tensor(self, value: torch.Tensor) -> Any:
        """The fake of a weight."""
        return UNKNOWN if self.mode is None else self.mode.from_tensor(value, static_shapes=True)

    def of_type(self, type: Type, device: torch.device | None = None) -> Any:
        """A fake value of a type; UNKNOWN where the graph has no fakes."""
        if self.mode is None:
            return UNKNOWN
        if isinstance(type, TupleType):
            return tuple(UNKNOWN if item is None else self.of_type(item, device) for item in type.fields)
        with self._quietly():
            return torch.empty(
                [self.size(size) for size in type.shape], dtype=getattr(torch, type.dtype), device=device
            )

    def size(self, size: Dim) -> Any:
        """A dimension as torch has it: an int, or a SymInt of the graph's shape environment."""
        if not isinstance(size, SymDim):
            return size
        env = None if self.mode is None else self.mode.shape_env
        return UNKNOWN if env is None else env.create_symintnode(torch_expression(size.expr), hint=None)

    def _run(self, node: fx.Node) -> Any:
        """The value of a call by running it on the values of its arguments."""
        if self.mode is None or node.op not in ("call_function", "call_method"):
            return UNKNOWN
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.values.value)
        known = [self.values.value(arg) for arg in node.all_input_nodes]
        if any(value is UNKNOWN or value is None for value in known):
            return UNKNOWN
        with self._quietly():
            try:
                if isinstance(node.target, str):
                    return getattr(args[0], node.target)(*args[1:], **kwargs)
                return node.target(*args, **kwargs)
            except Exception:
                # The type of the view stands in for what can't be run on fakes.
                return UNKNOWN

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Run on fakes without adding guards to the program."""
        assert self.mode is not None
        env = self.mode.shape_env
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(self.mode)
            if env is not None:
                stack.enter_context(env.suppress_guards())
            yield

    def _device(self, node: fx.Node) -> torch.device | None:
        for arg in node.all_input_nodes:
            value = self.values.value(arg)
            if isinstance(value, torch.Tensor):
                return value.device
        return None


def _strides(value: Any) -> tuple[Any, ...] | None:
    """How a (fake) tensor lies in memory, without deciding anything about symbolic sizes."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return tuple([dim_of(stride) for stride in value.stride()])


def _mode(native: fx.Graph, values: Values) -> FakeTensorMode | None:
    """The fake mode of a graph's values."""
    for node in native.nodes:
        value = values.value(node)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, FakeTensor):
                return item.fake_mode
    return None


def torch_expression(expr: Any) -> Any:
    """An expression in the functions that torch's shape environments know."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, PythonMod

    def floor_div(argument: Any) -> Any:
        return FloorDiv(*sympy.fraction(sympy.together(argument)))

    return expr.replace(sympy.floor, floor_div).replace(sympy.Mod, PythonMod)


