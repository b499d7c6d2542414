"""One function under its several names: ``torch.erfinv``, ``Tensor.erfinv``, ``aten.erfinv.default``.

This is about functions without a canonical operator, which a graph calls under one of these names and a pattern may
know under another. Functions of TVM are known by their names alone: each mention of one may be another object.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gsl.errors import PatternTypeError, nearest, require


class Parameter(NamedTuple):
    """A parameter of an operator of torch, as its schema has it."""

    name: str
    kind: str
    """The type as the schema writes it: ``Optional[List[int]]``."""
    takes_dtype: bool
    has_default: bool
    default: Any
    kwarg_only: bool
    is_written: bool


@functools.cache
def schema_of(overload: Any) -> tuple[Parameter, ...]:
    """The parameters of an operator of torch, which makes them anew whenever it is asked."""
    return tuple([
        Parameter(
            a.name, str(a.type), "ScalarType" in str(a.real_type), a.has_default_value(), a.default_value, a.kwarg_only,
            a.alias_info is not None and a.alias_info.is_write,
        )
        for a in overload._schema.arguments
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class TVMFunction:
    """The operator of a call of a function of TVM: one of the module, or a packed function."""

    name: str
    packed: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class OnnxOp:
    """The operator of a call in a model of ONNX: its name in its domain, which is that of ONNX itself unless given."""

    name: str
    domain: str = ""
    overload: str = ""

    def __str__(self) -> str:
        return f"{self.domain or 'onnx'}::{self.name}" + f".{self.overload}" * bool(self.overload)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class OpName:
    """An operator by its name alone, in a graph of objects whose operators are strings. There is one of each name, so
    that comparing two is cheap."""

    name: str

    def __new__(cls, name: str) -> OpName:
        if not isinstance(name, str):
            raise PatternTypeError.here(f"pat.OpName takes the name of an operator, got {name!r}")
        found = _NAMED.get(name)
        if found is None:
            new = object.__new__(cls)
            object.__setattr__(new, "name", name)
            found = _NAMED.setdefault(name, new)
        return found

    def __reduce__(self) -> tuple[type[OpName], tuple[str]]:
        return OpName, (self.name,)

    def __str__(self) -> str:
        return self.name


_NAMED: dict[str, OpName] = {}


def same_function(target: Any) -> frozenset[Any]:
    """The targets that call the same function as one of torch's or TVM's, itself included; of any other only itself."""
    if type(target).__module__.startswith("tvm."):
        own = tvm_function(target)
        return frozenset((target,)) if own is None else frozenset((target, own))
    if "torch" not in sys.modules or not isinstance(target, Hashable):
        return frozenset((target,))
    return _same_function(target)


@functools.cache
def _same_function(target: Any) -> frozenset[Any]:
    name = _aten_name(target)
    return frozenset((target,)) if name is None else frozenset((target, *_names_of(name)))


def tvm_function(target: Any) -> TVMFunction | None:
    """The function of TVM that a ``GlobalVar`` or an ``ExternFunc`` names; ``None`` for anything else."""
    match type(target).__name__:
        case "GlobalVar":
            return TVMFunction(str(target.name_hint))
        case "ExternFunc":
            return TVMFunction(str(target.global_symbol), packed=True)
    return None


def overloads(target: Any) -> tuple[Any, ...]:
    """The overloads of the aten operator that a target calls, ``default`` first; none if it is not such a target."""
    name = _aten_name(target)
    return () if name is None else _overloads(name)


def arguments(target: Any) -> frozenset[str] | None:
    """The names of all arguments of an operator of torch, in any of its overloads; ``None`` for any other target."""
    if "torch" not in sys.modules:
        return None
    found = _called(target)
    return frozenset(parameter.name for each in found for parameter in schema_of(each)) if found else None


def argument_at(target: Any, place: int) -> str | None:
    """The name of the argument at a place of an operator of torch; ``None`` where overloads differ, and for any other
    target."""
    lists = [schema_of(each) for each in _called(target)] if "torch" in sys.modules else []
    names = {each[place].name for each in lists if place < len(each)}
    return names.pop() if len(names) == 1 else None


def _called(target: Any) -> tuple[Any, ...]:
    """The overloads of torch that a target may call; none if it is no operator of torch."""
    import torch

    return (target,) if isinstance(target, torch._ops.OpOverload) else overloads(target)


@functools.lru_cache(maxsize=1024)
def written_operands(target: Any, count: int) -> tuple[int, ...] | None:
    """The places of the tensors that a call of an operator of torch with so many of them changes; ``None`` where it is
    not known which of its arguments they are."""
    parameters = schema_of(target) if type(target).__name__ == "OpOverload" else ()
    tensors = [parameter for parameter in parameters if "Tensor" in parameter.kind]
    if len(tensors) != count or any(parameter.kind != "Tensor" for parameter in tensors):
        return None
    return tuple(place for place, parameter in enumerate(tensors) if parameter.is_written)


def overload_of(target: Any) -> Any:
    """The overload that a packet of overloads, an operator made by ``torch.library.custom_op``, or a name such as
    ``"aten::relu"`` or ``"aten::add.Tensor"`` stands for; any other target is itself.

    ``"onnx::Unique"``, ``"com.microsoft::BiasGelu"`` and ``"onnx::mine::Scale"`` stand for operators of ONNX,
    ``"relax.sort"`` and ``"qnn.quantize"`` for those of TVM.
    LookupError for a name under which the framework has no operator.
    """
    if isinstance(target, str):
        return _overload_named(target)
    if "torch" not in sys.modules:
        return target
    import torch

    if isinstance(target, torch._library.custom_ops.CustomOpDef):
        return target._opoverload
    return _main_overload(target) if isinstance(target, torch._ops.OpOverloadPacket) else target


def is_of_tvm(name: str) -> bool:
    """True for the name of an operator of TVM: one of Relax, or what an imported TVM knows beside it."""
    if name.startswith("relax."):
        return True
    tvm = sys.modules.get("tvm.ir")
    return tvm is not None and name in tvm.Op.list_op_names()


def _overload_named(name: str) -> Any:
    if "::" not in name:
        require("tvm")
        from tvm.ir import Op

        if name not in Op.list_op_names():
            raise LookupError(f"TVM has no operator {name!r}: {nearest(name, Op.list_op_names())}")
        return Op.get(name)
    space, _, rest = name.partition("::")
    if space == "onnx" or "." in space:
        # Domains are named as hosts are, but for that of ONNX itself. Others stand behind that.
        domain, _, rest = rest.rpartition("::")
        return OnnxOp(rest, domain or ("" if space in ("onnx", "ai.onnx") else space))
    import torch

    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, space), packet_name, None) if packet_name.isidentifier() else None
    found = packet if packet is None or not overload else getattr(packet, overload, None)
    if found is None:
        raise LookupError(
            f"torch has no operator {name!r}; the module that defines it has to be imported before (one of ONNX "
            f"in a domain without a dot is 'onnx::{name}')"
        )
    return overload_of(found)


def _main_overload(packet: Any) -> Any:
    names = [name for name in packet.overloads() if not _names_axes(name)]
    return getattr(packet, next((name for name in ("default", "Tensor") if name in names), names[0]))


def _names_axes(overload: str) -> bool:
    """True for an overload of torch before 2.13 that takes the names of axes in place of their numbers."""
    return "names" in overload or "dimname" in overload.lower()


@functools.lru_cache(maxsize=1024)
def defaults(target: Any) -> Mapping[str, Any]:
    """The default values of the arguments of an operator of torch, lists as tuples."""
    if "torch" not in sys.modules:
        return {}
    import torch

    if not isinstance(target, torch._ops.OpOverload):
        return {}
    values = {parameter.name: parameter.default for parameter in schema_of(target) if parameter.has_default}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def parameters(target: Any) -> tuple[str, ...]:
    """The names of the positional parameters of a builtin function, as far as all its overloads agree on them."""
    lists = [
        [parameter.name for parameter in schema_of(overload) if not parameter.kwarg_only]
        for overload in overloads(target)
    ]
    names: list[str] = []
    for position in range(max(map(len, lists), default=0)):
        found = {each[position] for each in lists if position < len(each)}
        if len(found) > 1:
            break
        names += found
    return tuple(names)


def _aten_name(target: Any) -> str | None:
    """The name of the aten operator that a builtin function, method or overload of torch calls."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return target._opname if target.namespace == "aten" and target in _overloads(target._opname) else None
    name = getattr(target, "__name__", None)
    if name is None or isinstance(target, type) or not _overloads(name):
        return None
    return name if any(target is function for function in _builtins(name)) else None


@functools.cache
def _overloads(name: str) -> tuple[Any, ...]:
    """The overloads of an aten operator, without those that write into an ``out`` or take names of axes."""
    import torch

    packet: Any = getattr(torch.ops.aten, name, None)
    names: list[str] = [name for name in getattr(packet, "overloads", list)() if not _names_axes(name)]
    found = [getattr(packet, overload) for overload in sorted(names, key=lambda o: (o != "default", o))]
    return tuple(o for o in found if not any(a.is_out for a in o._schema.arguments))


def _builtins(name: str) -> list[Any]:
    """The functions and methods of that aten operator that are not written in Python."""
    import torch

    spaces: list[Any] = [torch, torch.Tensor, torch.nn.functional]
    places = [(space, name) for space in spaces]
    places += [
        (getattr(torch, space), name.removeprefix(f"{space}_"))
        for space in ("special", "linalg", "fft")
        if name.startswith(f"{space}_")
    ]
    found = [getattr(space, attribute, None) for space, attribute in places]
    return [f for f in found if f is not None and not hasattr(f, "__code__") and getattr(f, "__name__", "") == name]


def _names_of(name: str) -> tuple[Any, ...]:
    return (*_builtins(name), *_overloads(name))
