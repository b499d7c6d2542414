"""The fake values of a new native graph, kept where the old graph kept them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from gsl.front.fx.forms import NoKeyError, key
from gsl.front.fx.values import META_KEYS, UNKNOWN, Values, dim_of, type_of_value
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec.symbolic import has_symbols


@dataclass(frozen=True, slots=True)
class Place:
    """Where a native graph keeps what is known of its nodes."""

    key: str | None
    """The key of the fake values in the metadata; ``None`` where that has none."""
    has_tensor_meta: bool
    mode: FakeTensorMode | None
    """The fake mode of the values."""

    @staticmethod
    def of(native: fx.Graph, values: Values) -> Place:
        """Where that graph keeps it; ``values`` are those of the graph."""
        keys: set[str] = set()
        mode = None
        for node in native.nodes:
            keys.update(node.meta)
            if mode is None:
                mode = _mode(values.value(node))
        return Place(next((key for key in META_KEYS if key in keys), None), "tensor_meta" in keys, mode)


def _mode(value: Any) -> FakeTensorMode | None:
    """The fake mode of a value that is a fake tensor, or a tuple of some."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, FakeTensor):
            return item.fake_mode
    return None


class Layout(NamedTuple):
    """What there is to know of a fake tensor, except with which others it shares memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    is_conj: bool
    is_neg: bool
    is_plain: bool
    """Whether nothing else is to be known, if it has memory of its own."""

    @staticmethod
    def of(value: Any) -> Layout | None:
        """The layout of a fake tensor; ``None`` for any other value, and for one of symbolic sizes."""
        if type(value) is not FakeTensor or value.layout != torch.strided:
            return None
        shape, strides = value.shape, value.stride()
        if any(isinstance(size, torch.SymInt) for size in (*shape, *strides)):
            return None
        is_conj, is_neg = value.is_conj(), value.is_neg()
        is_plain = not (
            value.requires_grad or is_conj or is_neg or value.storage_offset() != 0
            or value.constant is not None or value.real_tensor is not None
        )  # fmt: skip
        return Layout(tuple(shape), tuple(strides), value.dtype, value.fake_device, is_conj, is_neg, is_plain)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 (a layout is a small tuple)
    def metadata(self) -> Any:
        """The metadata by which torch describes a plain tensor of this layout."""
        from torch.fx.passes.shape_prop import _extract_tensor_metadata

        memory = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
        return _extract_tensor_metadata(memory)

    def fake(self, mode: FakeTensorMode) -> FakeTensor:
        """A fake tensor of this layout."""
        with no_dispatch():
            memory = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
        return FakeTensor(mode, memory, self.device)


def _shares_memory(value: FakeTensor, others: Iterable[Any]) -> bool:
    """True if a tensor may be a view of one of those, which are tensors of a known layout."""
    memory = value.untyped_storage()._cdata
    return any(other.untyped_storage()._cdata == memory for other in others)


_LAYOUTS: Final[dict[Any, Layout]] = {}
"""The results of calls of operators that were run, by all that they depend on."""

_MOST_LAYOUTS: Final = 8192


def _alike(node: fx.Node, operands: Sequence[Layout]) -> Any:
    """What two calls of an operator have in common that have results alike; ``None`` if that is not known."""
    if not isinstance(node.target, OpOverload) or torch._C._is_any_autocast_enabled():
        return None
    places = {operand: index for index, operand in enumerate(node.all_input_nodes)}
    try:
        return (
            node.target, *operands, key(node.args, places), torch.get_default_dtype(),
            tuple([(name, key(value, places)) for name, value in node.kwargs.items()]),
        )  # fmt: skip
    except NoKeyError:
        return None


class Fakes:
    """What is known of the nodes of a new graph, and how it is told."""

    def __init__(self, old: Values, values: Values, place: Place) -> None:
        self.old = old
        self.values = values
        """The values of the new graph, which are the old ones where the old graph is changed in place."""
        self.place = place
        self.mode = place.mode
        self._layouts: dict[int, tuple[Any, Layout | None]] = {}
        """The layouts of values by their identity, with the value itself, so that no other one takes it."""
        self._copied: dict[fx.Node, fx.Node] = {}
        """The old node of each one that was copied."""
        self._before: dict[fx.Node, Any] = {}
        """The old values of old nodes that have got other ones."""
        self.moved: dict[fx.Node, bool] = {}
        """The nodes of the new graph that may lie otherwise in memory than what stood there in the old one, and
        whether it is known how."""

    def inner(self) -> Fakes:
        """The fakes of a graph of its own within this one."""
        return Fakes(Values(), Values(), self.place)

    def carry(self, node: fx.Node, copy: fx.Node) -> None:
        """Keep what is known of a node that was copied."""
        self._copied[copy] = node
        if node in self.old.known:
            self.values.known[copy] = self.old.known[node]

    def have_moved(self, old: fx.Node, new: Any) -> bool:
        """True if an argument may lie otherwise in memory than the one whose place it takes."""
        if isinstance(new, (tuple, list)):
            return True
        if not isinstance(new, fx.Node) or (new not in self.moved and (new is old or self._copied.get(new) is old)):
            return False
        value = self._before[old] if old in self._before else self.old.value(old)
        before, after = _strides(value), _strides(self.values.value(new))
        return not self.moved.get(new, True) or before is None or before != after

    def move(self, node: fx.Node, note: Callable[[Callable[[], object]], object]) -> None:
        """Take note that a call that is kept has arguments that lie otherwise in memory, and so may its result.

        ``note`` takes what undoes it.
        """
        value, before = self._run(node, None), self.values.value(node)
        known = value is not UNKNOWN and type_of_value(value) == type_of_value(before)
        self.moved[node] = known
        if known:
            self._before[node] = before
            meta, worked_out = dict(node.meta), self.values.known.get(node, UNKNOWN)
            note(lambda: self._restore(node, meta, worked_out))
            self.set(node, value)

    def _restore(self, node: fx.Node, meta: dict[str, Any], worked_out: Any) -> None:
        node.meta.clear()
        node.meta.update(meta)
        if worked_out is UNKNOWN:
            self.values.known.pop(node, None)
        else:
            self.values.known[node] = worked_out

    def record(self, node: fx.Node, type: Type | None, replaced: fx.Node | None = None) -> None:
        """Work out the value of a new call, and store it; ``type`` is what the view says about it.

        Where that of the old node whose place it takes is alike, it is that. Such a value may have memory in common
        with others where the new call has memory of its own, which is only less than could be known.
        """
        value = self._run(node, replaced)
        found = self.values.type_of(value)
        self.moved[node] = value is not UNKNOWN and found == type
        if type is not None and found != type:
            # The meaning of the operator decides; only the strides are lost.
            value = self.of_type(type, self._device(node))
        self.set(node, value)
        if self.mode is None and self.place.has_tensor_meta and isinstance(type, TensorType) and not has_symbols(type):
            shape: Any = type.shape
            self._set_tensor_meta(node, torch.empty(shape, dtype=getattr(torch, type.dtype), device="meta"))

    def set(self, node: fx.Node, value: Any) -> None:
        """Store the value of a new node where the old graph has its values."""
        if self.place.key is not None:
            node.meta[self.place.key] = None if value is UNKNOWN else value
        elif value is not UNKNOWN:
            self.values.known[node] = value
        if self.place.has_tensor_meta and isinstance(value, torch.Tensor):
            layout = self._layout(value)
            if layout is not None and layout.is_plain:
                node.meta["tensor_meta"] = layout.metadata()
            else:
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

    def _layout(self, value: Any) -> Layout | None:
        found = self._layouts.get(id(value))
        if found is None:
            found = self._layouts[id(value)] = value, Layout.of(value)
        return found[1]

    def _run(self, node: fx.Node, replaced: fx.Node | None) -> Any:
        """The value of a call on the values of its arguments: by running it, or like that of an equal call before."""
        if self.mode is None or node.op not in ("call_function", "call_method"):
            return UNKNOWN
        known = [self.values.value(arg) for arg in node.all_input_nodes]
        if any(value is UNKNOWN or value is None for value in known):
            return UNKNOWN
        operands = [self._layout(value) for value in known]
        alike = None if None in operands else _alike(node, operands)  # type: ignore[arg-type]
        layout = None if alike is None else _LAYOUTS.get(alike)
        if layout is not None:
            old = None if replaced is None else self.old.value(replaced)
            if self._layout(old) == layout and old.fake_mode is self.mode:  # type: ignore[union-attr]
                return old
            return layout.fake(self.mode)
        value = self._computed(node)
        layout = None if alike is None else Layout.of(value)
        if layout is not None and layout.is_plain and not _shares_memory(value, known):
            if len(_LAYOUTS) >= _MOST_LAYOUTS:
                _LAYOUTS.clear()
            _LAYOUTS[alike] = layout
        return value

    def _computed(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.values.value)
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


def torch_expression(expr: Any) -> Any:
    """An expression in the functions that torch's shape environments know."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, PythonMod

    def floor_div(argument: Any) -> Any:
        return FloorDiv(*sympy.fraction(sympy.together(argument)))

    return expr.replace(sympy.floor, floor_div).replace(sympy.Mod, PythonMod)


