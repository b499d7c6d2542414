"""The calls of a native graph one by one: the facts on which the time of each depends, and runs of single calls."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from gsl.errors import FrontEndError
from gsl.front.base import ProgramStep
from gsl.front.core.handle import shown
from gsl.front.fx.handle import FxLeaf, FxLeaves, attribute
from gsl.front.fx.spellings.effects import mutated, mutates_module
from gsl.front.fx.values import UNKNOWN, Values
from gsl.graph import INPUT, Graph

_CALLS: Final = ("call_function", "call_method", "call_module")


class FxSteps:
    """The calls of one native graph; ``root`` has the modules and tensors that it refers to."""

    def __init__(self, root: torch.nn.Module, graph: fx.Graph, leaves: FxLeaves, values: Values) -> None:
        self.root = root
        self.graph = graph
        self.leaves = leaves
        self.values = values

    def steps(self, view: Graph) -> list[ProgramStep]:
        """The calls that compute, with the nodes of a view that they stand for."""
        found = shown(view, lambda reading: filter(None, (reading.native, reading.call)))
        return [
            ProgramStep(node.name, tuple(found.get(node, ())), self._key(node), self._weights(node), node)
            for node in self.graph.nodes
            if node.op in _CALLS and not self._is_free(node)
        ]

    def alone(self, steps: Sequence[ProgramStep], copies: int, *, compiles: bool = False) -> Callable[[], object]:
        """A function that makes some of the calls, which inductor ``compiles``. FrontEndError where an operand can't be
        made up."""
        natives = [step.native for step in steps]
        graph, operands = self._region(natives, flat=compiles)
        module = fx.GraphModule(self._modules(natives), graph)
        generator = torch.Generator().manual_seed(0)
        changes = any(mutated(native.target, native.args, native.kwargs) for native in natives)
        sets = [
            [self._operand(node, generator, changes or number > 0) for node in operands] for number in range(copies)
        ]
        forward = inductor_code(module, sets[0]) if compiles else module.forward
        if copies == 1:
            return partial(forward, *sets[0])
        turns = itertools.cycle(sets)
        return lambda: forward(*next(turns))

    def _region(self, natives: Sequence[fx.Node], *, flat: bool = False) -> tuple[fx.Graph, list[fx.Node]]:
        """A graph of these calls alone, and the native nodes that are its inputs; ``flat`` takes the fields of results
        that are tuples apart."""
        graph = fx.Graph()
        made: dict[fx.Node, Any] = {}
        operands: list[fx.Node] = []
        for native in natives:
            for used in native.all_input_nodes:
                if used not in made:
                    made[used] = self._number(used)
                    if made[used] is UNKNOWN:
                        made[used] = graph.placeholder(f"x{len(operands)}")
                        operands.append(used)
            made[native] = graph.node_copy(native, made.__getitem__)
        inside = set(natives)
        ends = [native for native in natives if not native.users or not inside.issuperset(native.users)]
        results = [self._fields(graph, native, made[native]) if flat else [made[native]] for native in ends]
        graph.output(tuple(itertools.chain.from_iterable(results)))
        return graph, operands

    def _fields(self, graph: fx.Graph, native: fx.Node, copy: fx.Node) -> list[fx.Node]:
        """The result of a call, or its fields if it is a tuple."""
        value = self.values.value(native)
        if not isinstance(value, (tuple, list)):
            return [copy]
        return [graph.call_function(operator.getitem, (copy, number)) for number in range(len(value))]

    def _modules(self, natives: Sequence[fx.Node]) -> dict[str, Any]:
        """The modules that calls call, by name; a copy of one that changes its own weights."""
        found = {str(n.target): self.root.get_submodule(str(n.target)) for n in natives if n.op == "call_module"}
        return {name: deepcopy(module) if mutates_module(module) else module for name, module in found.items()}

    def _is_free(self, node: fx.Node) -> bool:
        """True if a call does nothing but take a field of a tuple, or look at a size."""
        value = self.values.value(node)
        if node.target is operator.getitem and not isinstance(self.values.value(node.args[0]), torch.Tensor):  # type: ignore[arg-type]
            return value is not UNKNOWN
        return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size))

    def _number(self, node: fx.Node) -> Any:
        """The number that a node of sizes has for the example; UNKNOWN for anything else."""
        value = self.values.value(node)
        return _hint(value) if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) else UNKNOWN

    def _leaf(self, node: fx.Node) -> FxLeaf | None:
        """The weight or literal tensor that a node reads."""
        kind = self.leaves.kind(node) if node.op in ("placeholder", "get_attr") else None
        return None if kind in (None, INPUT) else self.leaves.leaf(node)

    def _operand(self, node: fx.Node, generator: torch.Generator, fresh: bool) -> Any:
        """An operand to run a call on: the weight itself (a copy if it is to be ``fresh``), or a made-up value."""
        leaf, value = self._leaf(node), self.values.value(node)
        if leaf is not None and not isinstance(leaf.value, FakeTensor):
            own = leaf.value
        elif value is UNKNOWN and node.op == "get_attr":
            own = attribute(self.root, str(node.target))
        else:
            return _made_up(node.name, value, generator)
        return own.detach().clone() if fresh and isinstance(own, torch.Tensor) else own

    def _weights(self, node: fx.Node) -> int:
        if node.op == "call_module":
            return sum(map(_bytes, self.root.get_submodule(str(node.target)).parameters()))
        return sum(_bytes(leaf.value) for leaf in map(self._leaf, node.all_input_nodes) if leaf is not None)

    def _key(self, node: fx.Node) -> str:
        """The text of a call: its function and its arguments."""
        args = [self._argument(item) for item in node.args]
        args += [f"{name}={self._argument(item)}" for name, item in node.kwargs.items()]
        return f"{self._function(node)}({', '.join(args)})"

    def _function(self, node: fx.Node) -> str:
        target: Any = node.target
        if node.op == "call_module":
            module = self.root.get_submodule(str(target))
            code = module.code if isinstance(module, fx.GraphModule) else ""
            return f"{type(module).__module__}.{module}{list(map(_described, module.parameters()))}{code}"
        if isinstance(target, (str, OpOverload)):
            return str(target)
        return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"

    def _argument(self, argument: Any) -> str:
        match argument:
            case fx.Node():
                leaf = self._leaf(argument)
                if leaf is not None:
                    return f"weight {_described(leaf.value)}"
                value = self.values.value(argument)
                if value is UNKNOWN and argument.op == "get_attr":
                    value = attribute(self.root, str(argument.target))
                return _described(value)
            case list() | tuple():
                return f"[{', '.join(map(self._argument, argument))}]"
            case Mapping():
                return f"{{{', '.join(f'{key}: {self._argument(item)}' for key, item in argument.items())}}}"
        return _described(argument)


def inductor_code(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What inductor makes of a module, for inputs like these and without gradients.

    It may be called while torch compiles something else: what is known of that is no concern of the module.
    """
    from torch._guards import tracing
    from torch._inductor import compile

    with tracing(None), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inductor's advice is for whole programs
        found: Callable[..., Any] = compile(module, list(inputs))
        return found


def _described(value: Any) -> str:
    """The text of an argument, with the facts on which time depends: of a tensor its dtype, sizes, layout and
    device."""
    match value:
        case torch.Tensor() if value.is_nested or value.layout != torch.strided:
            return f"{value.dtype} {value.layout} {value.device}"
        case torch.Tensor():
            shape, strides = _sizes(value.shape), _sizes(value.stride())
            layout = "" if strides == _dense(shape) else f" strides {strides}"
            device = "" if value.device.type == "cpu" else f" {value.device}"
            return f"{str(value.dtype).removeprefix('torch.')}{list(shape)}{layout}{device}"
        case torch.SymInt() | torch.SymFloat():
            return str(_hint(value)) if value.node.has_hint() else "?"
        case fx.GraphModule():
            return value.code
        case tuple() | list():
            return f"[{', '.join(map(_described, value))}]"
        case _ if value is UNKNOWN:
            return "?"
    return repr(value)


def _hint(value: Any) -> Any:
    """The number of a size in the example. FrontEndError for one that only a run tells."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        if not value.node.has_hint():
            raise FrontEndError(f"the size {value} is known at run time only")
        return value.node.hint
    return value


def _sizes(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple([-1 if isinstance(v, torch.SymInt) and not v.node.has_hint() else _hint(v) for v in values])


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides = itertools.accumulate(reversed(shape), lambda stride, size: stride * max(size, 1), initial=1)
    return tuple(strides)[-2::-1] if shape else ()


def _made_up(name: str, value: Any, generator: torch.Generator) -> Any:
    """A tensor like a fake one: floats at random, integers that are valid indices; a tuple of such."""
    match value:
        case torch.Tensor() if value.is_nested or value.layout != torch.strided:
            raise FrontEndError(f"{name}: an operand of layout {value.layout} can't be made up")
        case torch.Tensor():
            return _tensor(value, generator)
        case tuple() | list():
            return type(value)(_made_up(name, item, generator) for item in value)
        case None | bool() | int() | float() | torch.SymInt() | torch.SymFloat():
            return _hint(value)
    raise FrontEndError(f"{name}: nothing is known of this operand: give example inputs when loading")


def _tensor(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    shape, strides = [_hint(size) for size in value.shape], [_hint(stride) for stride in value.stride()]
    room = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides) if size > 1)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        wide = torch.complex64 if value.dtype.is_complex else torch.float32
        memory = torch.randn(room, dtype=wide, generator=generator).to(value.dtype)
    else:
        memory = torch.full((room,), value.dtype == torch.bool, dtype=value.dtype)
    return memory.to(value.device).as_strided(shape, strides)


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
