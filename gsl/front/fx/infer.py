"""Types and values of single calls of a view."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from gsl.errors import FrontEndError, is_exhaustion
from gsl.front.core import infer as core
from gsl.front.core.handle import Handle, handle_of, is_literal
from gsl.front.fx.devices import Devices, is_created, is_placed
from gsl.front.fx.fakes import TensorLayout, is_kept, keep_layout, layout_of
from gsl.front.fx.on_meta import META, has_own_fakes, own_function, run_on_meta
from gsl.front.fx.opaque import native_call
from gsl.front.fx.parameters import from_numpy
from gsl.front.fx.spellings.table import Native
from gsl.front.fx.values import faked, type_of_value
from gsl.graph import Node, Op, TensorType, Type, op_name
from gsl.spec import meaning
from gsl.spec.meaning import SymbolSizes, has_symbols, whatever_sizes


def _infer_opaque(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of an opaque call, by a run on tensors without data; ``None`` if that is not possible."""
    types = tuple([operand.type for operand in operands])
    if any(type is None for type in types):
        return None
    if has_symbols(types) or has_symbols(dict(attrs)):
        return _infer_symbolic(op, operands, attrs)
    known = tuple([_Operand(operand.type, _number(operand)) for operand in operands])
    if is_pure(op):
        try:
            return _type_of_function(op, known, tuple([(name, type(value), value) for name, value in attrs.items()]))
        except TypeError:  # an attribute that can't be a key
            pass
    return _run_on_fakes(op, known, attrs)


def infer(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call, or ``None`` if it does not follow. ValueError if the call is ill-typed."""
    return core.infer(op, operands, attrs, _infer_opaque)


def _infer_symbolic(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of an opaque call with symbolic sizes; ``None`` also where it depends on them."""

    known = [_Operand(operand.type, _number(operand)) for operand in operands]

    def run(sizes: SymbolSizes) -> Type:
        found = _run_on_fakes(op, known, sizes.concrete(dict(attrs)), sizes)
        if found is None:
            raise ValueError(f"{op_name(op)}: the type does not follow")
        return found

    try:
        return whatever_sizes(op_name(op), run, tuple([operand.known for operand in known]), dict(attrs))
    except ValueError:
        return None


def is_pure(op: Op) -> bool:
    """True for a function of torch or Python whose result depends on its arguments only, and on nothing that a program
    changes."""
    if isinstance(op, torch._ops.OpOverload):
        return True
    module = getattr(op, "__module__", None) or ""
    return isinstance(op, (BuiltinFunctionType, FunctionType)) and module.partition(".")[0] in ("torch", "_operator")


@lru_cache(maxsize=4096)
def _type_of_function(
    op: Op, operands: tuple[_Operand, ...], attrs: tuple[tuple[str, type, Any], ...]
) -> Type | None:
    """The type of a call that follows from these arguments alone, as it does for functions without state."""
    known = {name: value for name, _, value in attrs}
    on_meta = _run_on_meta(op, operands, known) if _AGREES.get(op, has_own_fakes(op)) else None
    if on_meta is None or not (on_meta.is_sure or op in _AGREES):
        found = _run_on_fakes(op, operands, known)
        if on_meta is not None:
            _AGREES[op] = on_meta.type == found and is_kept(on_meta.alike, on_meta.layout)
        return found
    keep_layout(on_meta.alike, on_meta.layout)
    return on_meta.type


_AGREES: Final[dict[Op, bool]] = {}
"""True for an operator that told the same of a call on the device ``meta`` as on fake tensors, which take ten times as
long, where it could not be sure; one that asks for the device of its operands may not."""


_empty_meta: Final = partial(torch.empty, device=META)


@dataclass(frozen=True, slots=True)
class _FoundOnMeta:
    """The type of a call that was run on the device ``meta``, with its key and layout for equal ones."""

    type: Type
    alike: Any
    layout: TensorLayout | None
    is_sure: bool
    """True if a run on fake tensors would tell the same."""


def _run_on_meta(op: Op, operands: Sequence[_Operand], attrs: Mapping[str, Any]) -> _FoundOnMeta | None:
    """What a call of an operator is by a run on tensors of the device ``meta``, which stand for those of the CPU;
    ``None`` if that fails."""
    own = None if attrs else own_function(op, len(operands))
    with no_dispatch():
        tensors = [operand.tensor(_empty_meta) for operand in operands]
    try:
        call = native_call(op, tensors, attrs)
    except Exception:
        # Fake tensors tell why.
        return None
    run = run_on_meta(own or call.target, call.args, call.kwargs)
    type = None if run is None else type_of_value(run.value)
    if run is None or type is None:
        return None
    return _FoundOnMeta(type, *layout_of(call, tensors, run.value), run.is_sure)


def _run_on_fakes(
    op: Op, operands: Sequence[_Operand], attrs: Mapping[str, Any], sizes: SymbolSizes | None = None
) -> Type | None:
    make: Callable[..., Any]
    if sizes is None:
        mode, make = meaning.fake_mode(lenient=True), meaning.empty_fake
    else:
        mode, make = FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes.env), torch.empty
    with mode, torch.no_grad(), torch._C._DisableAutocast(), meaning.quiet():
        try:
            if "module" in attrs and isinstance(attrs["module"], torch.nn.Module):
                attrs = {**attrs, "module": faked(attrs["module"], mode)}
            tensors = [operand.tensor(make, sizes) for operand in operands]
            value = _run(op, tensors, attrs)
            if sizes is None and isinstance(op, torch._ops.OpOverload):
                keep_layout(*layout_of(native_call(op, tensors, attrs), tensors, value))
            return type_of_value(value)
        except fake_tensor.UnsupportedOperatorException:
            pass
        except _NOT_UNDERSTOOD:
            return None
        except Exception as error:
            if is_exhaustion(error):
                raise
            if not isinstance(error, (RuntimeError, ValueError, IndexError, TypeError)):
                # Whatever stands in the way, the call is not understood: it has no type, which is no error.
                return None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{op_name(op)}: {reason}") from None
    return _run_on_zeros(op, operands, attrs) if sizes is None else None


def _run_on_zeros(op: Op, operands: Sequence[_Operand], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call of torch's own that has no form for tensors without data, as those have none that pack
    weights; ``None`` if that would draw random numbers, change an operand, or take much memory."""
    if not isinstance(op, torch._ops.OpOverload) or op.namespace not in _PACKERS or op._schema.is_mutable:
        return None
    if torch.Tag.nondeterministic_seeded in op.tags or sum(operand.size for operand in operands) > _MOST_ELEMENTS:
        return None
    with torch.no_grad():
        try:
            return type_of_value(_run(op, [operand.tensor(torch.zeros) for operand in operands], attrs))
        except Exception as error:
            if is_exhaustion(error):
                raise
            # Zeros may not be what it takes.
            return None


_NOT_UNDERSTOOD: Final = (
    NotImplementedError, fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException, fake_tensor.UnsupportedOperatorException,
)  # fmt: skip
"""The errors that torch raises where a call may be right, but can't be run on tensors without data."""

_PACKERS: Final = ("mkldnn", "onednn", "quantized", "prepacked")
"""The namespaces of torch that have operators without a form for tensors without data."""

_MOST_ELEMENTS: Final = 1 << 26


def _number(operand: Node) -> tuple[type, Any] | None:
    """The number that an operand is, with its Python type, because ``True`` is not ``1``."""
    return (type(operand.attrs["value"]), operand.attrs["value"]) if is_literal(operand) else None


@dataclass(frozen=True, slots=True)
class _Operand:
    """The known facts about an operand: its type, and its value where it is a number."""

    known: Type | None
    number: tuple[type, Any] | None

    def tensor(self, make: Callable[..., torch.Tensor], sizes: SymbolSizes | None = None) -> Any:
        """The operand as tensors that are made for it, or as the number that it is."""
        return _tensor_of(self.known, make, sizes) if self.number is None else self.number[1]

    @property
    def size(self) -> int:
        """The number of elements of the operand, where it is a tensor of known sizes."""
        sizes: Any = self.known.shape if isinstance(self.known, TensorType) else ()
        return int(math.prod(sizes))


def _tensor_of(type: Type | None, make: Callable[..., torch.Tensor], sizes: SymbolSizes | None) -> Any:
    if isinstance(type, TensorType):
        shape: Any = type.shape if sizes is None else sizes.concrete(type.shape)
        return make(shape, dtype=getattr(torch, type.dtype))
    return None if type is None else tuple([_tensor_of(item, make, sizes) for item in type.fields])


def evaluate(root: torch.nn.Module, node: Node, operands: Sequence[Any], devices: Devices) -> Any:
    """The value of a node on tensors and Python numbers, without gradients; ``root`` has the called modules, and
    ``devices`` are those of its graph."""

    def placed(values: Sequence[Any]) -> Iterator[Any]:
        for value, part in zip(map(from_numpy, values), node.operands):
            yield value if is_placed(part) else devices.place(value, part)

    def run(node: Node, values: list[Any]) -> Any:
        handle = handle_of(node)
        return _run(node.op, values, node.attrs) if handle is None else _run_native(root, handle, values)

    with torch._C._DisableAutocast():
        value = core.evaluate(node, operands, placed, run)
        return devices.place(value, node) if is_created(node) else value


def _run_native(root: torch.nn.Module, handle: Handle, operands: Sequence[Any]) -> Any:
    """The value of a native call for these values of its operands."""
    native = handle.reading.native
    if len(operands) != len(handle.sources):
        raise FrontEndError(f"{native.name}: depends on sizes at run time, and is not computed ahead of time")
    values = dict(zip(handle.sources, operands))
    replace: Any = values.__getitem__
    args, kwargs = fx.node.map_arg((native.args, native.kwargs), replace)
    if native.op == "call_module":
        return root.get_submodule(str(native.target))(*args, **kwargs)
    target: Any = getattr(args[0], native.target) if isinstance(native.target, str) else native.target
    return target(*(args[1:] if isinstance(native.target, str) else args), **kwargs)


def _run(op: Op, operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    if isinstance(op, type):
        module = attrs["module"] if "module" in attrs else op(**attrs)
        return module(*operands)
    call: Native = native_call(op, operands, attrs)
    if isinstance(call.target, str):
        return getattr(call.args[0], call.target)(*call.args[1:], **call.kwargs)
    return call.target(*call.args, **call.kwargs)
