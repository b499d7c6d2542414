"""The fake values of a new native graph, kept where the old graph kept them."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, contains, is_
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.shape_prop import TensorMetadata, _extract_tensor_metadata
from torch.utils._mode_utils import no_dispatch

from gsl.errors import is_exhaustion
from gsl.front.fx.devices import check_joint
from gsl.front.fx.handle import UNTOLD, calls_of
from gsl.front.fx.on_meta import own_function, run_on_meta
from gsl.front.fx.signatures import NoKeyError, key
from gsl.front.fx.spellings.table import Native
from gsl.front.fx.values import (
    META_KEYS,
    UNKNOWN,
    Values,
    device_of,
    dim_of,
    fake_only,
    is_dense_copy,
    is_strided,
    lies_by_rows,
    lies_densely,
    tensor_type,
    tensors,
    type_of_value,
    value_of,
)
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec.meaning import has_symbols


@dataclass(frozen=True, slots=True)
class MetadataFields:
    """The metadata fields in which a native graph keeps its types and values."""

    key: str | None
    """The key of the fake values in the metadata; ``None`` where that has none."""
    has_tensor_meta: bool
    mode: FakeTensorMode | None
    """The fake mode of the values."""
    are_strides_sure: bool = True
    """False if some tensors are known to lie otherwise in memory than their values tell."""

    @staticmethod
    def of(graph: fx.Graph, values: Values) -> MetadataFields:
        """The fields that a graph uses; ``values`` are those of the graph."""
        nodes = graph.nodes

        def occurs(key: str) -> bool:
            return any(map(contains, map(_META, nodes), repeat(key)))

        mode = next(filter(None, map(_mode, map(values.value, nodes))), None)
        are_strides_sure = not (
            any(_lies_otherwise(node, values) for node in calls_of(graph, _VOLUMES))
            or any(_is_untold(values.value(node)) for node in calls_of(graph, _UNTOLD))
        )
        return MetadataFields(next(filter(occurs, META_KEYS), None), occurs("tensor_meta"), mode, are_strides_sure)


_META: Final = attrgetter("meta")
_VOLUMES: Final = (
    torch.ops.aten.conv3d.default, torch.ops.aten.conv3d.padding, torch.ops.aten.conv_transpose3d.input,
    torch.ops.aten.convolution.default,
)  # fmt: skip
"""The convolutions that may be ones of volumes."""


def _lies_otherwise(node: fx.Node, values: Values) -> bool:
    """True for a convolution of volumes whose result has its channels last, while its value has not.

    One operand with channels last is enough for the kernel, and ``torch.export`` does not know it.
    """

    def has_channels_last(operand: fx.Node) -> bool:
        value = values.value(operand)
        return is_strided(value) and value.ndim == 5 and _strides(value)[1] == 1

    return not has_channels_last(node) and any(map(has_channels_last, node.all_input_nodes[:2]))


_UNTOLD: Final = tuple([
    getattr(torch.ops.aten, name).default
    for name in (
        "batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional", "_batch_norm_with_update", "_batch_norm_with_update_functional",
        "_batch_norm_no_update", "max_pool1d",
    )
])  # fmt: skip
"""The calls whose results lie otherwise than torch tells: batch norms, and the pooling of signals."""


def _is_untold(value: Any) -> bool:
    """True for the value of such a call that lies otherwise on a CPU: a fake one lies as its operand, and one of a CPU
    is dense, or has the channels of images and volumes last."""
    result = value[0] if isinstance(value, (tuple, list)) else value
    if not is_strided(result):
        return False
    try:
        return not _is_usual(result.shape, result.stride())
    except TypeError:  # symbolic sizes can't be keys
        return not _is_usual(tuple(map(dim_of, result.shape)), _strides(result))


@functools.lru_cache(maxsize=4096)
def _is_usual(shape: tuple[Dim, ...], strides: tuple[Any, ...]) -> bool:
    """True for the strides of a tensor that is dense, or has the channels of images and volumes last."""
    axes = [*range(len(shape))]
    orders = [axes, [0, *axes[2:], 1]] if len(axes) in (4, 5) else [axes]
    return any(strides == _strides_of(shape, order) for order in orders)


def _strides_of(shape: tuple[Dim, ...], order: list[int]) -> tuple[Any, ...]:
    """The strides of a dense tensor of that shape, whose axes follow each other in that order."""
    strides: dict[int, Any] = {}
    size: Any = 1
    for axis in reversed(order):
        strides[axis] = size
        size = size * shape[axis]
    return tuple([strides[axis] for axis in range(len(shape))])


def _mode(value: Any) -> FakeTensorMode | None:
    """The fake mode of a value that is a fake tensor, or a tuple of some."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, FakeTensor):
            return item.fake_mode
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """All properties of a fake tensor, except with which others it shares memory, and if it wants gradients.

    Equal ones are one object, nearly always, which is quick to compare and to hash.
    """

    properties: tuple[Any, ...]
    sizes_of: object = None
    """What stands for the shape environment of symbolic sizes, which are expressions here; ``None`` without such."""


def _form(value: torch.Tensor) -> Form | None:
    """The form of a fake tensor, or of one of the device ``meta``, which stands for one of the CPU."""
    fake, dtype = value if isinstance(value, FakeTensor) else None, value.dtype
    properties = (
        value.shape, value.stride(), dtype, _CPU if fake is None else fake.fake_device,
        dtype.is_complex and value.is_conj(), value.is_neg(), value.storage_offset(),
        fake is None or (fake.constant is None and fake.real_tensor is None),
    )  # fmt: skip
    try:
        return _form_with(properties)
    except TypeError:  # symbolic sizes have no hash, since to compare them would decide something about them
        env = None if fake is None else fake.fake_mode.shape_env
        if env is None:
            return None
        return _form_with(tuple(map(_expressed, properties)), _ENVIRONMENTS.setdefault(env, object()))


def _expressed(part: Any) -> Any:
    """A part of a form with the expressions of symbolic sizes."""
    if isinstance(part, torch.SymInt):
        return part.node.expr
    return tuple(map(_expressed, part)) if isinstance(part, tuple) else part


_ENVIRONMENTS: Final[weakref.WeakKeyDictionary[Any, object]] = weakref.WeakKeyDictionary()
"""What stands for each shape environment in forms."""

_MOST_KEPT: Final = 8192
"""The largest number of answers in one of these tables."""

_form_with: Final = functools.lru_cache(_MOST_KEPT)(Form)
"""The form of a combination of properties."""

_CPU: Final = torch.device("cpu")

_PLAIN: Final = (False, False, 0, True)
"""The last properties of a tensor that has memory of its own and no special property."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorLayout:
    """The plain tensors that are the results of calls which are alike."""

    form: Form
    metadata: TensorMetadata | None
    """The description of them by torch; ``None`` with symbolic sizes."""
    type: Type | None

    @staticmethod
    def of(value: Any, operands: Iterable[Any]) -> TensorLayout | None:
        """The layout of the result of a call on these operands; ``None`` for one that is no plain tensor of its own."""
        if type(value) not in (FakeTensor, torch.Tensor) or value.layout != torch.strided or value.requires_grad:
            return None
        form, memory = _form(value), value.untyped_storage()._cdata
        if form is None or form.properties[4:] != _PLAIN:
            return None
        if any(other.untyped_storage()._cdata == memory for other in operands):
            return None
        return _plain_layout(form) if form.sizes_of is None else TensorLayout(form, None, type_of_value(value))

    def fake(self, mode: FakeTensorMode) -> FakeTensor:
        """A fake tensor of this layout."""
        properties = self.form.properties
        if self.form.sizes_of is None:
            return FakeTensor(mode, _memory(properties), properties[3])
        env: Any = mode.shape_env
        shape, strides = (tuple([_size_of(env, size) for size in sizes]) for sizes in properties[:2])
        with env.suppress_guards():
            return FakeTensor(mode, _memory((shape, strides, properties[2])), properties[3])


def _size_of(env: ShapeEnv, size: Any) -> Any:
    """A size, which is a number or an expression in the symbols of a shape environment, as torch has it."""
    return size if isinstance(size, int) else env.create_symintnode(size, hint=None)


@functools.lru_cache(maxsize=4096)
def _plain_layout(form: Form) -> TensorLayout:
    shape, strides, dtype, *_ = form.properties
    memory, type = _memory(form.properties), tensor_type(shape, dtype)
    if memory.is_contiguous():  # as nearly always, and torch takes long to find out
        metadata = TensorMetadata(shape, dtype, False, strides, torch.contiguous_format, False, {})
        return TensorLayout(form, metadata, type)
    return TensorLayout(form, _extract_tensor_metadata(memory), type)


def _has_own_memory(value: torch.Tensor) -> bool:
    """True for a plain tensor without gradients that is no view of another one."""
    is_plain = type(value) is torch.Tensor and value.layout == torch.strided and value.device.type != "meta"
    return is_plain and not (
        value.requires_grad or value._is_view() or value.storage_offset() or value.is_conj() or value.is_neg()
        or value.is_quantized or value.is_inference() or value.untyped_storage().nbytes() != value.nbytes
    )  # fmt: skip


def _memory(properties: tuple[Any, ...]) -> torch.Tensor:
    with no_dispatch():
        return torch.empty_strided(properties[0], properties[1], dtype=properties[2], device="meta")


_LAYOUTS: Final[dict[Any, TensorLayout]] = {}
"""The results of calls of operators that were run, by all that they depend on."""

_LIES: Final[dict[Any, bool]] = {}
"""True where the result of such a call lies alike whatever the layout of some of its operands, which are numbered."""


class Fakes:
    """The known types and values of the nodes of a new graph, and how they are written into its metadata."""

    def __init__(self, old: Values, values: Values, place: MetadataFields) -> None:
        self.old = old
        self.values = values
        """The values of the new graph, which are the old ones where the old graph is changed in place."""
        self.place = place
        self.mode = place.mode
        self._copied: dict[fx.Node, fx.Node] = {}
        """The old node of each one that was copied."""
        self._before: dict[fx.Node, Any] = {}
        """The old values of old nodes that have got other ones."""
        self.moved: dict[fx.Node, bool] = {}
        """The nodes of the new graph that may lie otherwise in memory than what stood there in the old one, and
        whether it is known how."""
        self._forms: dict[int, tuple[Form | None, Any]] = {}
        """The forms of values by their addresses, with the values, so that no others get those."""
        self.have_spread = False
        """True if a kept call is among those, so that other kept calls may be among them, too."""

    def inner(self) -> Fakes:
        """The fakes of a graph of its own within this one."""
        return Fakes(Values(), Values(), self.place)

    def carry(self, node: fx.Node, copy: fx.Node) -> None:
        """Copy the known value of a node to its copy."""
        self._copied[copy] = node
        if node in self.old.known:
            self.values.known[copy] = self.old.known[node]

    def have_moved(self, old: fx.Node, new: Any) -> bool:
        """True if an argument may lie otherwise in memory than the one whose place it takes."""
        if isinstance(new, (tuple, list)):
            return True
        if not isinstance(new, fx.Node) or (new not in self.moved and (new is old or self._copied.get(new) is old)):
            return False
        before, after = self.values_of(old, new)
        if not self._is_told(new) or not is_strided(before):
            return True
        if after is before:
            return False
        return not self.place.are_strides_sure or not is_strided(after) or _strides(before) != _strides(after)

    def has_rows(self, node: Any) -> bool:
        """True if the elements along the last axis of a node's value are known to stand side by side in memory."""
        return is_dense_copy(node) or (self._is_told(node) and lies_by_rows(self.values.value(node)))

    def is_dense(self, node: fx.Node) -> bool:
        """True if the elements of a node's value are known to stand in memory one after the other."""
        return is_dense_copy(node) or (self._is_told(node) and lies_densely(self.values.value(node)))

    def _is_told(self, node: Any) -> bool:
        """True if a node's value tells how it lies in memory."""
        known = self.moved.get(node)
        return UNTOLD not in node.meta if known is None and isinstance(node, fx.Node) else known is not False

    def values_of(self, old: fx.Node, new: fx.Node) -> tuple[Any, Any]:
        """The value that was known of an old node, and the one known of the node that takes its place."""
        return self.before(old), self.values.value(new)

    def before(self, old: fx.Node) -> Any:
        """The value that was known of an old node."""
        return self._before[old] if old in self._before else self.old.value(old)

    def move(self, node: fx.Node, note: Callable[[Callable[[], object]], object]) -> None:
        """Note that a call that is kept has arguments that lie otherwise in memory, and so may its result.

        ``note`` takes what undoes it.
        """
        (value, layout), before = self._run(node, ()), self.values.value(node)
        is_alike = value is not UNKNOWN and type_of_value(value) == type_of_value(before)
        known = is_alike and self.place.are_strides_sure and self._lies(node, value)
        self.moved[node], self.have_spread = known, True
        meta, worked_out = dict(node.meta), self.values.known.get(node, UNKNOWN)
        note(lambda: self._restore(node, meta, worked_out))
        self._tell(node, known)
        if known:
            self._before[node] = before
            self.set(node, value, layout)

    def _tell(self, node: fx.Node, known: bool) -> None:
        """Note in the metadata, for the next rewrite, if a value does not tell how the result lies in memory."""
        if known or not any(map(is_strided, tensors(self.values.value(node)))):
            node.meta.pop(UNTOLD, None)
        else:
            node.meta[UNTOLD] = True

    def _lies(self, node: fx.Node, value: Any) -> bool:
        """True if a call's result has the layout of its value, although the layout of some operands is not known.

        It does if it lies so for other operands, too, as the result of a product of matrices does.
        """
        if all(map(self._is_told, node._input_nodes)):
            return True
        unknown = tuple([i for i, arg in enumerate(node._input_nodes) if not self._is_told(arg)])
        alike = self._alike(node, self.values)
        if alike is None:
            return self._lies_for_any(node, value, unknown)
        key = (alike, unknown)
        if key not in _LIES:
            _keep(_LIES, key, self._lies_for_any(node, value, unknown))
        return _LIES[key]

    def _lies_for_any(self, node: fx.Node, value: Any, unknown: Collection[int]) -> bool:
        """True if a call's result lies as its value does, however these operands lie."""
        operands = [arg for i, arg in enumerate(node._input_nodes) if i in unknown]

        def lies(place: Callable[[torch.Tensor], torch.Tensor]) -> bool:
            others = {arg: self._placed(self.values.value(arg), place) for arg in operands}
            other = self._computed(node, lambda arg: others.get(arg, self.values.value(arg)))
            return is_strided(other) and _strides(value) == _strides(other)

        ranks = [known.ndim for arg in operands if is_strided(known := self.values.value(arg))]
        return is_strided(value) and all(map(lies, _placements(max(ranks, default=0))))

    def _placed(self, value: Any, place: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """A fake tensor that lies otherwise in memory, or a tuple of some; anything else as it is, but UNKNOWN for a
        fake tensor of another mode, with which this one does not compute."""
        if isinstance(value, (tuple, list)):
            return tuple([self._placed(item, place) for item in value])
        if not is_strided(value):
            return value
        if isinstance(value, FakeTensor) and value.fake_mode is not self.mode:
            return UNKNOWN
        with self._quietly():
            return place(value)

    def _restore(self, node: fx.Node, meta: dict[str, Any], worked_out: Any) -> None:
        node.meta.clear()
        node.meta.update(meta)
        if worked_out is UNKNOWN:
            self.values.known.pop(node, None)
        else:
            self.values.known[node] = worked_out

    def record(
        self, node: fx.Node, type: Type | None, replaced: Iterable[fx.Node] = (), *, chosen: bool = False
    ) -> None:
        """Work out the value of a new call, and store it; ``type`` is its type in the view.

        ``chosen`` tells that the kernel chooses how its result lies in memory, which a run on fakes does not tell.

        Where that of one of the old nodes whose place it takes is alike, it is that. Such a value may have memory in
        common with others where the new call has memory of its own, which is only less than could be known.
        """
        value, layout = self._run(node, replaced)
        found = self.values.type_of(value) if layout is None else layout.type
        is_alike = found is type or found == type
        self.moved[node] = is_alike and value is not UNKNOWN and not chosen and self._lies(node, value)
        if type is not None and not is_alike:
            # The meaning of the operator decides; only the strides are lost.
            value, layout = self.of_type(type, self._device(node)), None
        self.set(node, value, layout)
        self._tell(node, self.moved[node])
        if self.mode is None and self.place.has_tensor_meta and isinstance(type, TensorType) and not has_symbols(type):
            shape: Any = type.shape
            memory = torch.empty(shape, dtype=getattr(torch, type.dtype), device="meta")
            node.meta["tensor_meta"] = _extract_tensor_metadata(memory)

    def set(self, node: fx.Node, value: Any, layout: TensorLayout | None = None) -> None:
        """Store the value of a new node where the old graph has its values."""
        if self.place.key is not None:
            node.meta[self.place.key] = None if value is UNKNOWN else value
        elif value is not UNKNOWN:
            self.values.known[node] = value
        if self.place.has_tensor_meta and isinstance(value, torch.Tensor):
            known = None if layout is None else layout.metadata
            node.meta["tensor_meta"] = known or _extract_tensor_metadata(value)

    def of_tensor(self, value: torch.Tensor) -> tuple[Any, TensorLayout | None]:
        """The fake of a weight, and its layout if it is a plain tensor."""
        if self.mode is None:
            return UNKNOWN, None
        if _has_own_memory(value) and not self.mode.propagate_real_tensors:  # a tenth of the time that torch takes
            layout = _plain_layout(_form_with((value.shape, value.stride(), value.dtype, value.device, *_PLAIN)))
            return layout.fake(self.mode), layout
        return self.mode.from_tensor(value, static_shapes=True), None

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
        return UNKNOWN if env is None else _size_of(env, torch_expression(size.expr))

    def _run(self, node: fx.Node, replaced: Iterable[fx.Node]) -> tuple[Any, TensorLayout | None]:
        """The value of a call on the values of its arguments: by running it, or like that of an equal call before."""
        if self.mode is None or node.op not in ("call_function", "call_method"):
            return UNKNOWN, None
        alike = self._alike(node, self.values)
        layout = None if alike is None else _LAYOUTS.get(alike)
        if alike is not None and layout is None:
            replaced = tuple(replaced)
            layout = self._layout_before(alike, replaced) or self._layout_on_meta(alike, node)
        if layout is not None:
            for old in map(self.old.value, replaced):
                is_alike = type(old) is FakeTensor and old.fake_mode is self.mode and self._form(old) is layout.form
                if is_alike and not old.requires_grad:
                    return old, layout
            return layout.fake(self.mode), layout
        operands = [self.values.value(arg) for arg in node._input_nodes]
        if any(value is UNKNOWN or value is None for value in operands):
            return UNKNOWN, None
        value = self._computed(node)
        layout = None if alike is None else TensorLayout.of(value, operands)
        keep_layout(alike, layout)
        return value, layout

    def _alike(self, node: fx.Node, values: Values) -> tuple[Any, ...] | None:
        """A key that is equal for two calls of an operator whose results are alike; ``None`` if that is not known."""
        form, known = self._form, values.known
        with fake_only():
            forms = {arg: form(value_of(arg, known)) for arg in node._input_nodes}
        return _alike(node.target, node.args, node.kwargs, forms)

    def _layout_before(self, alike: tuple[Any, ...], replaced: Iterable[fx.Node]) -> TensorLayout | None:
        """The layout of the result of an old call that is alike, which takes a tenth of the time of a run."""
        for node in replaced:
            if node.target is alike[0] and node not in self.moved and self._alike(node, self.old) == alike:
                operands = [value for arg in node._input_nodes if is_strided(value := self.old.value(arg))]
                layout = TensorLayout.of(self.old.value(node), operands)
                keep_layout(alike, layout)
                return layout
        return None

    def _layout_on_meta(self, alike: tuple[Any, ...], node: fx.Node) -> TensorLayout | None:
        """The layout of the result of an operator of a user's, whose function is sure to tell it on the device ``meta``
        of tensors that stand for those of the CPU."""
        own = own_function(node.target, len(node.args))
        forms = {arg: self._form(self.values.value(arg)) for arg in node._input_nodes}
        are_plain = all(
            form is not None and form.sizes_of is None and form.properties[3:] == (_CPU, *_PLAIN)
            for form in forms.values()
        )
        if own is None or not are_plain or node.kwargs:
            return None
        tensors = {arg: _memory(form.properties) for arg, form in forms.items() if form is not None}
        run = run_on_meta(own, [tensors[arg] for arg in node.args if isinstance(arg, fx.Node)], {})
        layout = TensorLayout.of(run.value, tensors.values()) if run is not None and run.is_sure else None
        keep_layout(alike, layout)
        return layout

    def _form(self, value: Any) -> Form | None:
        """The form of a value, which is found once; ``None`` for what is no plain fake tensor."""
        known = self._forms.get(id(value))
        if known is None:
            is_plain = type(value) is FakeTensor and value.layout == torch.strided
            known = self._forms[id(value)] = _form(value) if is_plain else None, value
        return known[0]

    def _computed(self, node: fx.Node, value: Callable[[fx.Node], Any] | None = None) -> Any:
        """The value of a call by running it, on the known values of its arguments unless ``value`` gives others."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value or self.values.value)
        with self._quietly():
            try:
                if isinstance(node.target, str):
                    return getattr(args[0], node.target)(*args[1:], **kwargs)
                return node.target(*args, **kwargs)
            except Exception as error:
                if is_exhaustion(error):
                    raise
                check_joint(node, map(self.values.value, node.all_input_nodes), error)
                # The type of the view stands in for what can't be run on fakes.
                return UNKNOWN

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Run on fakes without adding guards to the program, and without the caller's autocast."""
        assert self.mode is not None
        env = self.mode.shape_env
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch._C._DisableAutocast())
            stack.enter_context(self.mode)
            if env is not None:
                stack.enter_context(env.suppress_guards())
            yield

    def _device(self, node: fx.Node) -> torch.device | None:
        for arg in node.all_input_nodes:
            device = device_of(self.values.value(arg))
            if device is not None:
                return device
        return None


def _alike(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], forms: Mapping[Any, Form | None]
) -> tuple[Any, ...] | None:
    """A key that is equal for two calls of an operator whose results are alike; ``None`` if that is not known.

    ``forms`` are those of all nodes and tensors among the arguments, each once.
    """
    if not isinstance(target, OpOverload) or not all(forms.values()):
        return None
    if id(target) in _BIASED and len(args) > 2 and _are_joint(forms.get(args[1]), forms.get(args[2])):
        forms = {arg: form for arg, form in forms.items() if arg is not args[2]}
        args = (*args[:2], None, *args[3:]) if len(args) > 3 else args[:2]
    parts: list[Any] = [target, torch.get_default_dtype(), *forms.values()]
    if len(args) == len(forms) and not kwargs and all(map(is_, args, forms)):  # nothing but operands, each once
        return (*parts, *range(len(args)))
    places = {operand: place for place, operand in enumerate(forms)}
    try:
        parts += [places[arg] if arg.__class__ in _OPERANDS else key(arg, places) for arg in args]
        parts += [(name, key(value, places)) for name, value in kwargs.items()]
        found = tuple(parts)
        hash(found)
    except (NoKeyError, TypeError):  # symbolic sizes have no hash
        return None
    return found


def _are_joint(weight: Form | None, bias: Form | None) -> bool:
    """True for a weight and a bias of one dtype, on one device."""
    return weight is not None and bias is not None and weight.properties[2:4] == bias.properties[2:4]


_BIASED: Final = frozenset(
    id(getattr(getattr(torch.ops.aten, name), overload))
    for name in ("conv1d", "conv2d", "conv3d", "convolution")
    for overload in getattr(torch.ops.aten, name).overloads()
)
"""The operators whose third operand is a bias, which does not matter for how the result lies: by their addresses,
because their names and hashes take long."""

_OPERANDS: Final = (fx.Node, FakeTensor, torch.Tensor)


def layout_of(call: Native, operands: Sequence[Any], result: Any) -> tuple[Any, TensorLayout | None]:
    """The key of a call that was run on fake tensors, or on the device ``meta``, and the layout of its result; ``None``
    where that is no plain tensor."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    alike = _alike(call.target, call.args, call.kwargs, {tensor: _form(tensor) for tensor in tensors})
    return alike, None if alike is None else TensorLayout.of(result, tensors)


def keep_layout(alike: Any, layout: TensorLayout | None) -> None:
    """Keep the layout of the result of a call that was run, so that none that is alike is run again."""
    if layout is not None:
        _keep(_LAYOUTS, alike, layout)


def is_kept(alike: Any, layout: TensorLayout | None) -> bool:
    """True if this is what was kept of a call."""
    kept = _LAYOUTS.get(alike)
    return kept is layout if kept is None or layout is None else kept.form == layout.form


def _keep(table: dict[Any, Any], key: Any, answer: Any) -> None:
    if len(table) >= _MOST_KEPT:
        table.clear()
    table[key] = answer


def _placements(rank: int) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Functions that give tensors of this rank, or a lower one, other places in memory: with their axes in reversed
    order, with the channels last, and rotated.

    A reshape that joins some of the axes and copies the elements of one of these gives a view of another one.
    """

    def ordered(order: Callable[[int], list[int]], value: torch.Tensor) -> torch.Tensor:
        axes = order(value.ndim)
        inverse = sorted(range(value.ndim), key=axes.__getitem__)
        return value.permute(axes).clone(memory_format=torch.contiguous_format).permute(inverse)

    def rotated(by: int, rank: int) -> list[int]:
        return [(axis + by) % rank for axis in range(rank)]

    yield functools.partial(ordered, lambda rank: [*range(rank)][::-1])
    yield functools.partial(ordered, lambda rank: [0, *range(2, rank), 1][:rank])
    for by in range(1, rank):
        yield functools.partial(ordered, functools.partial(rotated, by))


def _strides(value: torch.Tensor) -> tuple[Any, ...]:
    """The strides of a (fake) tensor, without deciding anything about symbolic sizes."""
    return tuple([dim_of(stride) for stride in value.stride()])


def torch_expression(expr: Any) -> Any:
    """An expression in the functions that torch's shape environments know."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, PythonMod

    def floor_div(argument: Any) -> Any:
        return FloorDiv(*sympy.fraction(sympy.together(argument)))

    return expr.replace(sympy.floor, floor_div).replace(sympy.Mod, PythonMod)
