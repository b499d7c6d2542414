"""The front ends under test: how each makes a small program of its own, and what it is known to do differently."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx, nn

from gsl.front.base import Program
from gsl.graph import SymDim, TensorType, Type
from gsl.spec import TABLE
from tests.conformance import known_onnx, known_relax, known_relay, known_torch

SIZES = (5, 7, 3, 9)
"""What the symbolic sizes of example inputs are, in the order in which they are met."""


class Native(NamedTuple):
    """The target and the attributes of a native call."""

    target: Any
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class FrontEnd:
    """One front end, as the suite uses it."""

    name: str
    skeleton: Callable[[Mapping[str, Type | None], Sequence[Type | None], bool], Program]
    """The smallest native program with these inputs, whose outputs stand for those of these types. Told whether calls
    without effects are all that will be written into it."""
    differences: Callable[[Any, Any], list[str]]
    """In what two native programs differ."""
    calls: Callable[[Any], list[str]]
    """The names of the native calls of a program, in order."""
    program: Callable[[Any], Program]
    """The program of a native graph."""
    word: str
    """The name of the framework in messages."""
    opaque: Native
    """A native call of one tensor, without a canonical form and without effects, whose result has the same type."""
    impure: Native | None = None
    """The same with an effect, if there is such a thing: random, or a function of which nothing is known."""
    unavailable: str = ""
    """Why the front end can't be used here, if it can't."""
    symbolic: bool = True
    """Whether inputs may have symbolic sizes."""
    repeated: bool = True
    """Whether a program can be run in which a symbolic size stands in several places."""
    untyped: bool = False
    """Whether inputs may have no type."""
    few: Set[str] = frozenset()
    """The operators of a front end in the making, which has a few: whatever needs others is left out. None: all."""
    missing: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The operators that can't be written, each with the reason."""
    unspelled: Set[str] = field(default=frozenset(), repr=False)
    """The operators that it writes by the decompositions of their declarations."""
    refused: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The single calls that can't be written though others of the operator can, by row, each with the reason."""
    composed: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The calls that come back as others, by row, each with the operators of these."""

    unwritten: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The cases of the rule book whose view can't be written, by the reason in the error."""
    respelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The cases of the rule book whose view is another one when it is loaded again, by the reason."""
    silent: Set[str] = field(default=frozenset(), repr=False)
    """The respelled cases on which the rule does not fire."""
    never: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The rules that fire in no case, each with the reason."""
    single: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The cases and networks that can't be compiled in float64, by the reason; they are run in float32."""
    coarse: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The networks of which a part is not computed in float64 when they are run in it, by the reason."""
    rewritten: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The cases in which the result of the rule is another view when it is loaded again, by the reason."""
    admitted: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The cases in which a rule must not fire and still does, on a view that was respelled, by the reason."""

    def listed(self, kind: str) -> set[str]:
        """The cases of one of the lists by reason."""
        return {case for cases in getattr(self, kind).values() for case in cases}

    def refuses(self, op: str, label: str) -> bool:
        """True for a call that can't be written."""
        return op in self.missing or label in self.refused or not self.has([op])

    def has(self, ops: Iterable[Any]) -> bool:
        """False if one of the operators is none of the few that the front end has."""
        return not self.few or not {op for op in ops if op in TABLE} - self.few


def examples(inputs: Mapping[str, Type | None]) -> tuple[torch.Tensor, ...]:
    """A tensor for each input, of zeros."""
    sizes: dict[str, int] = {}
    return tuple([_example(type, sizes) for type in inputs.values()])


def _example(type: Type | None, sizes: dict[str, int]) -> torch.Tensor:
    assert isinstance(type, TensorType)
    shape = [sizes.setdefault(str(d), SIZES[len(sizes)]) if isinstance(d, SymDim) else d for d in type.shape]
    return torch.zeros(shape, dtype=getattr(torch, type.dtype))


# ---------------------------------------------------------------- torch


class Empty(nn.Module):
    """A module that makes so many outputs of nothing."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, *inputs: torch.Tensor) -> Any:
        made = tuple([torch.zeros(()) for _ in range(self.outputs)])
        return made[0] if self.outputs == 1 else made


def traced(inputs: Mapping[str, Type | None], outputs: Sequence[Type | None], pure: bool) -> Program:
    from gsl.front.fx import from_graph_module

    graph = fx.Graph()
    for name in inputs:
        graph.placeholder(name)
    made = tuple([graph.call_function(torch.zeros, ((),)) for _ in outputs])
    graph.output(made[0] if len(made) == 1 else made)
    typed = all(type is not None for type in inputs.values())
    return from_graph_module(fx.GraphModule(nn.Module(), graph), examples(inputs) if typed else None)


def exported(inputs: Mapping[str, Type | None], outputs: Sequence[Type | None], pure: bool) -> Program:
    return exported_skeleton(tuple(inputs.items()), len(outputs))


@functools.cache
def exported_skeleton(fed: tuple[tuple[str, Type | None], ...], outputs: int) -> Program:
    """The same for all views of these inputs: a program does not change."""
    from gsl.front.fx import from_model

    inputs = dict(fed)

    class Named(Empty):
        """Takes its inputs under their names."""

    names = ", ".join(inputs)
    space: dict[str, Any] = {}
    exec(f"def forward(self, {names}): return Empty.forward(self, {names})", {"Empty": Empty}, space)
    Named.forward = space["forward"]  # type: ignore[method-assign]
    dims: dict[str, Any] = {}
    shapes = {
        name: {
            axis: dims.setdefault(str(size), torch.export.Dim(str(size), min=2, max=64))
            for axis, size in enumerate(type.shape)
            if isinstance(size, SymDim)
        }
        for name, type in inputs.items()
        if isinstance(type, TensorType)
    }
    return from_model(Named(outputs), examples(inputs), dynamic_shapes=shapes)


def torch_differences(old: Any, new: Any) -> list[str]:
    from tests.front.fx.fx_helpers import differences

    return differences(old, new)


def torch_calls(native: Any) -> list[str]:
    nodes = [node for node in native.graph.nodes if node.op in ("call_function", "call_method")]
    return [_torch_name(node.target) for node in nodes]


def _torch_name(target: Any) -> str:
    if isinstance(target, str):
        return f"Tensor.{target}"
    name = target.__name__
    spaces = {"torch": torch, "torch.nn.functional": nn.functional, "operator": operator}
    found = [space for space, module in spaces.items() if getattr(module, name, None) is target]
    return f"{found[0]}.{name}" if found else str(target)


def torch_program(native: Any) -> Program:
    from gsl.front.fx import program

    return program(native)


FX = FrontEnd(
    "fx", traced, torch_differences, torch_calls, torch_program, "torch",
    opaque=Native(torch.special.i0e, {}), impure=Native(torch.rand_like, {}), symbolic=False, untyped=True,
    **known_torch.FX,
)  # fmt: skip
EXPORTED = FrontEnd(
    "exported", exported, torch_differences, torch_calls, torch_program, "torch",
    opaque=Native(torch.special.i0e, {}), impure=Native(torch.rand_like, {}), **known_torch.EXPORTED,
)  # fmt: skip


# ---------------------------------------------------------------- TVM


def relay_module(inputs: Mapping[str, Type | None], outputs: Sequence[Type | None], pure: bool) -> Program:
    from tvm import IRModule, relay, tir

    from gsl.front.relay import from_module

    shapes = [type.shape for type in inputs.values() if isinstance(type, TensorType)]
    places = Counter(str(dim) for shape in shapes for dim in shape if isinstance(dim, SymDim))
    sizes: dict[str, Any] = {}

    def size(dim: Any) -> Any:
        if not isinstance(dim, SymDim):
            return dim
        # Relay compiles programs of sizes that are not known, but not of those that have a name.
        return relay.Any() if places[str(dim)] == 1 else sizes.setdefault(str(dim), tir.Var(str(dim), "int32"))

    params = []
    for name, type in inputs.items():
        assert isinstance(type, TensorType)
        params.append(relay.var(name, shape=tuple(map(size, type.shape)), dtype=type.dtype))
    made = [relay.zeros((), "float32") for _ in outputs]
    body = made[0] if len(made) == 1 else relay.Tuple(made)
    return from_module(IRModule.from_expr(relay.Function(params, body)))


def relay_calls(native: Any) -> list[str]:
    from tvm import relay

    found: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relay.Call):
            found.append(str(expr.op.name))

    relay.analysis.post_order_visit(native["main"], visit)
    return found


def relay_program(native: Any) -> Program:
    from gsl.front.relay import from_module

    return from_module(native)


def relax_module(inputs: Mapping[str, Type | None], outputs: Sequence[Type | None], pure: bool) -> Program:
    from tvm import relax, tirx

    from gsl.front.relax import from_module

    sizes: dict[Any, Any] = {}

    def size(dim: Any) -> Any:
        if not isinstance(dim, SymDim):
            return dim
        symbols = sorted(dim.expr.free_symbols, key=str)
        for symbol in symbols:
            sizes.setdefault(symbol, tirx.Var(str(symbol), "int64"))
        return sympy.lambdify(symbols, dim.expr)(*[sizes[symbol] for symbol in symbols])

    def shape(type: Type | None) -> list[Any]:
        assert isinstance(type, TensorType)
        return list(map(size, type.shape))

    params = [relax.Var(name, relax.TensorType(shape(type), type.dtype)) for name, type in inputs.items()]
    builder = relax.BlockBuilder()
    # Calls with effects stand outside of dataflow blocks.
    with builder.function("main", params, pure=pure):
        with builder.dataflow() if pure else contextlib.nullcontext():
            made = [builder.emit(relax.op.zeros(shape(type), type.dtype)) for type in outputs]
            result = made[0] if len(made) == 1 else relax.Tuple(made)
            result = builder.emit_output(result) if pure else builder.emit(result)
        builder.emit_func_output(result)
    return from_module(builder.get())


def relax_calls(native: Any) -> list[str]:
    from tvm import relax

    found: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call):
            found.append(str(expr.op.name).removeprefix("relax."))

    relax.analysis.post_order_visit(native["main"], visit)
    return found


def relax_program(native: Any) -> Program:
    from gsl.front.relax import from_module

    return from_module(native)


def tvm_differences(old: Any, new: Any) -> list[str]:
    """Where two modules of TVM differ."""
    import tvm

    try:
        tvm.ir.assert_structural_equal(old, new, map_free_vars=False)
    except ValueError as error:
        return [str(error)]
    return []


def relay_front_end() -> FrontEnd:
    front_end = FrontEnd(
        "relay", relay_module, tvm_differences, relay_calls, relay_program, "Relay", repeated=False,
        opaque=Native(None, {}), unavailable=lacking("tvm.relay", "a TVM with Relay, which is one before 0.20"),
    )  # fmt: skip
    if front_end.unavailable:
        return front_end
    from tvm.ir import Op

    from gsl.front.relay import spellings

    return dataclasses.replace(
        front_end, opaque=Native(Op.get("sort"), {"axis": -1, "is_ascend": True}), missing=spellings.MISSING,
        unspelled=TABLE.keys() - spellings.WRITERS.keys(),
        **known_relay.LISTS,
    )  # fmt: skip


def lacking(package: str, wanted: str) -> str:
    """Why a front end is unavailable where there is no such package; nothing where there is."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    return "" if found else f"needs {wanted}"


def relax_front_end() -> FrontEnd:
    front_end = FrontEnd(
        "relax", relax_module, tvm_differences, relax_calls, relax_program, "Relax",
        opaque=Native(None, {}), unavailable=lacking("tvm.tirx", "a TVM of version 0.27 or newer"),
    )  # fmt: skip
    if front_end.unavailable:
        return front_end
    import tvm_ffi
    from tvm.ir import Op

    from gsl.front.relax import spellings
    from gsl.spec.natives import TVMFunction

    tvm_ffi.register_global_func("gsl.conformance.impure", lambda tensor: tensor, override=True)
    impure = Native(TVMFunction("gsl.conformance.impure", packed=True), {"out_ty": TensorType((2, 3), "float64")})
    return dataclasses.replace(
        front_end, impure=impure, opaque=Native(Op.get("relax.sort"), {"axis": -1, "descending": False}),
        missing=spellings.MISSING, unspelled=TABLE.keys() - spellings.WRITERS.keys(), **known_relax.LISTS,
    )  # fmt: skip


# ---------------------------------------------------------------- ONNX


def onnx_module(
    inputs: Mapping[str, Type | None], outputs: Sequence[Type | None], pure: bool, version: int | None = None
) -> Program:
    import onnx
    import onnx_ir as ir

    from gsl.front.onnx import from_onnx
    from gsl.front.onnx.types import onnx_dtype

    fed = []
    for name, type in inputs.items():
        assert isinstance(type, TensorType)
        shape = ir.Shape([str(size) if isinstance(size, SymDim) else size for size in type.shape])
        fed.append(ir.Value(name=name, shape=shape, type=ir.TensorType(onnx_dtype(type.dtype))))
    made = [ir.node("Constant", [], {"value_float": 0.0}) for _ in outputs]
    for number, (node, type) in enumerate(zip(made, outputs)):
        node.outputs[0].name = f"result_{number}"
        assert isinstance(type, TensorType)
        node.outputs[0].type = ir.TensorType(onnx_dtype(type.dtype))
        node.outputs[0].shape = ir.Shape([None if isinstance(size, SymDim) else size for size in type.shape])
    opsets = {"": version or onnx.defs.onnx_opset_version()}
    results = [node.outputs[0] for node in made]
    graph = ir.Graph(fed, results, nodes=made, opset_imports=opsets, name="main")
    return from_onnx(ir.Model(graph, ir_version=10))


def onnx_calls(native: Any) -> list[str]:
    return [node.op_type for node in native.graph]


def onnx_program(native: Any) -> Program:
    from gsl.front.onnx import program

    return program(native)


def onnx_differences(old: Any, new: Any) -> list[str]:
    import onnx_ir as ir

    one, other = (ir.to_proto(model).SerializeToString(deterministic=True) for model in (old, new))
    return [] if one == other else [f"{ir.to_onnx_text(old)}\n\n{ir.to_onnx_text(new)}"]


def onnx_front_end() -> FrontEnd:
    front_end = FrontEnd(
        "onnx", onnx_module, onnx_differences, onnx_calls, onnx_program, "ONNX",
        opaque=Native(None, {}), unavailable=lacking("onnx_ir", "the package onnx-ir"),
    )  # fmt: skip
    if front_end.unavailable:
        return front_end
    from gsl.front.onnx import spellings
    from gsl.spec.natives import OnnxOp

    return dataclasses.replace(
        front_end, opaque=Native(OnnxOp("Shrink"), {"lambd": 0.25}),
        impure=Native(OnnxOp("RandomNormalLike"), {"seed": 1.0}), missing=spellings.MISSING,
        unspelled=TABLE.keys() - spellings.WRITERS.keys(), **known_onnx.LISTS,
    )  # fmt: skip


RELAX, RELAY, ONNX = relax_front_end(), relay_front_end(), onnx_front_end()
OLD_ONNX = dataclasses.replace(ONNX, name="onnx_16", skeleton=functools.partial(onnx_module, version=16))
"""Models of a version that lacks most operators of neural networks."""

FRONT_ENDS = (FX, EXPORTED, RELAX, RELAY, ONNX)
AVAILABLE = tuple(front_end for front_end in FRONT_ENDS if not front_end.unavailable)
