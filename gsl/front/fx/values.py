"""The known values of a native graph: fake tensors and sizes, and the view's types made from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.shape_prop import TensorMetadata

from gsl.errors import is_exhaustion
from gsl.front.tree import LiteralOperand
from gsl.graph import TensorType, TupleType, Type, dtype_name
from gsl.spec.meaning import from_torch, has_symbols, quiet

META_KEYS = ("val", "example_value")
"""The metadata keys of the fake value of a node, in exported graphs and in graphs from torch.compile."""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
"""The value of a node of which nothing is known (``None`` is a value)."""


def value_of(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """The fake value of a node, from the values known besides its metadata or from the metadata; or UNKNOWN."""
    if known and node in known:
        return known[node]
    meta = node.meta
    for key in META_KEYS:
        if key in meta:
            return meta[key]
    return meta.get("tensor_meta", UNKNOWN)


def dim_of(size: Any) -> Any:
    """A size (an int or a SymInt) as a dimension of the view."""
    return from_torch(size.node.expr) if isinstance(size, torch.SymInt) else int(size)


def type_of_value(value: Any) -> Type | None:
    """The type of a (fake) tensor, of its stored metadata, of a number, or of a tuple of those; else ``None``."""
    match value:
        case torch.Tensor() if value.is_nested:
            return None  # its sizes are no numbers
        case torch.Tensor() | TensorMetadata():
            return TensorType(tuple([dim_of(size) for size in value.shape]), dtype_name(value.dtype))
        case torch.Size():
            return None
        case tuple() | list():
            fields = tuple([None if is_scalar(item) else type_of_value(item) for item in value])
            return TupleType(fields) if any(field is not None for field in fields) else None
        case _ if is_scalar(value):
            return TensorType((), dtype_name(torch.tensor(value).dtype))  # as torch has it
    return None


def is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


fake_only: Final = torch._C.DisableTorchFunctionSubclass
"""A context in which only fake tensors may be asked for their properties. Torch does not look whether the class of a
tensor answers in its own way, which takes half the time; that of fake tensors does not."""


class FxTypes(dict[fx.Node, "Type | None"]):
    """The types of native nodes, each found when it is asked for first; equal ones are the same object.

    ``None`` where a type is unknown or not a tensor's. It is a dictionary because loading asks for the types of all
    operands of all calls.
    """

    __slots__ = ("_known", "symbolic")

    def __init__(self, known: Mapping[fx.Node, Any]) -> None:
        self._known = known
        self.symbolic: dict[Type, Type] = {}
        """The types with symbolic sizes that were found, which are those of this graph."""

    def __missing__(self, node: fx.Node) -> Type | None:
        found = self[node] = self.of(value_of(node, self._known))
        return found

    def find_all(self, nodes: Iterable[fx.Node]) -> None:
        """Find the types of many nodes, which takes half the time that it takes to ask for one after the other."""
        known, first, others = self._known, META_KEYS[0], []
        with fake_only():
            for node in nodes:
                value = node.meta.get(first)
                if isinstance(value, FakeTensor) and not (known and node in known):
                    try:
                        self[node] = tensor_type(value.shape, value.dtype)
                        continue
                    except TypeError:  # symbolic sizes can't be keys
                        pass
                others.append(node)
        for node in others:
            self.__missing__(node)

    def of(self, value: Any) -> Type | None:
        """The type of a value, ``None`` for one that is no tensor and no tuple of some."""
        if isinstance(value, torch.Tensor):
            try:
                return tensor_type(value.shape, value.dtype)
            except TypeError:  # symbolic sizes can't be keys
                pass
        own = None if value is None or is_scalar(value) else type_of_value(value)
        if own is None:
            return None
        return self.symbolic.setdefault(own, own) if has_symbols(own) else _common(own)


@functools.lru_cache(maxsize=8192)
def _common(type: Type) -> Type:
    """The object that stands for a type in all graphs."""
    return type


@functools.lru_cache(maxsize=8192)
def tensor_type(shape: Sequence[int], dtype: torch.dtype) -> Type:
    """The type of a tensor. TypeError where sizes are symbolic, which can't be keys."""
    return _common(TensorType(tuple(map(dim_of, shape)), dtype_name(dtype)))


_RESHAPING: Final = frozenset(
    (
        "as_strided_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
        "unsqueeze_",
    )
)  # fmt: skip
"""The calls that change the shape of a tensor itself."""


def _reshapes(target: Any) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.partition(".")[0] in _RESHAPING


class Values:
    """The known values of the nodes of one native graph: those in its metadata, and those worked out beside it."""

    __slots__ = ("known", "type", "type_of", "types")

    def __init__(self, known: Mapping[fx.Node, Any] | None = None) -> None:
        self.known = dict(known or {})
        """The values that the metadata does not tell. The native graph itself is never written to."""
        self.types = FxTypes(self.known)
        self.type: Callable[[fx.Node], Type | None] = self.types.__getitem__
        """The type of a native node; ``None`` where it is unknown or not a tensor. Equal types are the same object."""
        self.type_of = self.types.of
        """The type of a value, ``None`` for one that is no tensor and no tuple of some."""

    def value(self, node: fx.Node) -> Any:
        """The fake value of a node, or UNKNOWN."""
        return value_of(node, self.known)

    def of(self, argument: Any) -> Type | None:
        """The type of an argument of a native call."""
        match argument:
            case fx.Node():
                return self.type(argument)
            case list() | tuple():
                return TupleType(tuple([self.of(item) for item in argument]))
            case LiteralOperand():
                return type_of_value(argument.value)
        return type_of_value(argument)

    def forget_reshaped(self, nodes: Sequence[fx.Node]) -> None:
        """Forget the tensors of which one of these calls changes the shape: they have another one before it."""
        calls = [node for node in nodes if node.op in ("call_function", "call_method")]
        targets = {id(node.target): node.target for node in calls}  # torch's operators are slow to hash
        reshaping = {key for key, target in targets.items() if _reshapes(target)}
        calls = [node for node in calls if id(node.target) in reshaping] if reshaping else []
        operands = [operand for node in calls for operand in node.all_input_nodes[:1]]
        changed = {id(value) for value in map(self.value, operands) if isinstance(value, torch.Tensor)}
        for node in nodes if changed else ():
            if id(self.value(node)) in changed:
                self.known[node] = UNKNOWN

    def forget(self, nodes: Iterable[fx.Node]) -> None:
        """Drop the known values of nodes that are gone."""
        known, types = self.known, self.types
        for node in nodes:
            known.pop(node, None)
            types.pop(node, None)

    def is_tensor(self, node: fx.Node) -> bool:
        """False for a node that is known to be no tensor and no tuple of tensors: a size, a shape, None."""
        return self.type(node) is not None or self.value(node) is UNKNOWN


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """A tensor, or those of a tuple."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def device_of(value: Any) -> torch.device | None:
    """The device of a tensor; ``None`` for anything else.

    ``device`` of a fake tensor would not do: it is ``meta`` while another thread runs a call on fakes of that mode.
    """
    if isinstance(value, FakeTensor):
        return value.fake_device
    return value.device if isinstance(value, torch.Tensor) else None


def devices_of(values: Iterable[Any]) -> set[torch.device | None]:
    """The devices of all tensors among some values, and of those of the tuples."""
    found: set[torch.device | None] = set()
    for value in values:
        if type(value) is FakeTensor:  # as nearly always
            found.add(value.fake_device)
        elif isinstance(value, torch.Tensor):
            found.add(device_of(value))
        elif isinstance(value, (tuple, list)):
            found.update(map(device_of, tensors(value)))
    return found


def is_elsewhere(value: Any) -> bool:
    """True for a tensor on another device than the CPU."""
    device = device_of(value)
    return device is not None and device.type != "cpu"


def is_strided(value: Any) -> bool:
    """True for a tensor that lies in memory by strides."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def lies_densely(value: Any) -> bool:
    """True if the elements of a tensor are known to stand in memory one after the other."""
    return is_strided(value) and all(isinstance(size, int) for size in value.shape) and value.is_contiguous()


def lies_by_rows(value: Any) -> bool:
    """True if the elements along the last axis of a tensor are known to stand side by side in memory."""
    return is_strided(value) and [dim_of(stride) for stride in value.stride()[-1:]] == [1]


def is_dense_copy(node: Any) -> bool:
    """True for a call that makes a dense copy, however its operand lies in memory."""
    is_copy = isinstance(node, fx.Node) and node.target is torch.ops.aten.clone.default
    return is_copy and node.kwargs.get("memory_format") is torch.contiguous_format


def keeps_elements(node: fx.Node, value: Callable[[fx.Node], Any]) -> bool:
    """True for an ``as_strided`` that leaves each element of its operand in its place; torch writes one behind the mean
    of images with the channels last, for the strides of axes of one element."""
    if node.target is not torch.ops.aten.as_strided.default:
        return False
    before, after = value(node.args[0]), value(node)  # type: ignore[arg-type]
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    places = [
        (dim_of(tensor.storage_offset()), [(size, stride) for size, stride in zip(*_lengths(tensor)) if size != 1])
        for tensor in (before, after)
    ]
    return _lengths(before)[0] == _lengths(after)[0] and places[0] == places[1]


def _lengths(tensor: torch.Tensor) -> tuple[list[Any], list[Any]]:
    """The sizes and the strides of a (fake) tensor, without deciding anything about symbolic ones."""
    return [dim_of(size) for size in tensor.shape], [dim_of(stride) for stride in tensor.stride()]


def propagate(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """The fake values of all nodes for these inputs; where a node can't be run on fakes, those before it."""
    from torch._guards import detect_fake_mode

    if any(isinstance(value, torch.Tensor) and value.is_nested for value in inputs):
        return {}  # their sizes are no numbers, and what follows from them has no type
    mode = detect_fake_mode(list(inputs)) or FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [
        mode.from_tensor(value, static_shapes=True)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        else value
        for value in inputs
    ]
    values: dict[fx.Node, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        with mode, torch.no_grad(), quiet():
            Recorder(faked(gm, mode), graph=gm.graph).run(*fakes, enable_io_processing=False)
    except Exception as error:
        if is_exhaustion(error):
            raise
        # Data-dependent control and foreign code can't be run on fakes: types are then unknown from there on.
        return values
    finally:
        mode.allow_non_fake_inputs = before
    return values


def faked(root: torch.nn.Module, mode: FakeTensorMode) -> Any:
    """A copy of a module that holds fakes of its tensors, so that nothing that is run changes the module itself.

    Modules and tensors that occur several times do so in the copy.
    """
    modules: dict[int, torch.nn.Module] = {}

    def of(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if isinstance(value, FakeTensor):
                return value
            try:
                return mode.from_tensor(value, static_shapes=True)
            except Exception:
                # A kind of tensor that has no fakes.
                return value.detach().clone()
        return of_module(value) if isinstance(value, torch.nn.Module) else value

    def of_module(module: torch.nn.Module) -> torch.nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("a compiled module can't be run on fake tensors")
        if id(module) not in modules:
            new = modules[id(module)] = object.__new__(type(module))
            for name, value in vars(module).items():
                inner = name in ("_parameters", "_buffers", "_modules")
                vars(new)[name] = {key: of(item) for key, item in value.items()} if inner else of(value)
        return modules[id(module)]

    return of_module(root)
