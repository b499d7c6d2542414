"""Functions of tensors as traced graphs, with sizes and attributes that are numbers in each trace.

``make_fx`` before dispatch gives the calls that ``torch.export`` gives, in half of its time; the tensors are fake, so
that nothing is computed.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import torch
import torch.utils._pytree as pytree
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

from gsl.errors import FrontEndError, Location, PatternError
from gsl.front.fx.program import from_graph_module
from gsl.graph import Effect, Graph, TensorType, dtype_name
from gsl.spec.custom import noted_calls
from gsl.spec.meaning import quiet

_TORCH: Final = f"{Path(torch.__file__).parent}{os.sep}"
_OWN: Final = f"{Path(__file__).parent.parent.parent}{os.sep}"
_VALUE_ERRORS: Final = frozenset(("DataDependentOutputException", "GuardOnDataDependentSymNode"))
_VALUE_WORDS: Final = ("trying to get a value out of", "data-dependent", "local_scalar_dense")

_LIST_WORDS: Final = "must be tuple of Tensors, not FakeTensor"


def traced(
    function: Callable[..., Any],
    types: Mapping[str, TensorType],
    attributes: Mapping[str, Any],
    weights: frozenset[str] = frozenset(),
    make: Callable[[Callable[..., Any], Sequence[torch.Tensor]], torch.fx.GraphModule] | None = None,
) -> Graph:
    """The view of what a function computes of tensors of these types, which are its inputs in this order.

    ``weights`` names those among the tensors that are weights of the function, a module; ``make`` traces it otherwise
    than before dispatch. Raises FrontEndError, with the line of the function, where a call fails with these types or
    no tensor is so large, and PatternError for a function that looks at a value, changes a tensor, takes a list of
    them, or returns anything but tensors.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    names = list(types)

    def call(*values: torch.Tensor) -> tuple[Any, ...]:
        given = dict(zip(names, values))
        own = {name: given.pop(name) for name in names if name in weights}
        if isinstance(function, torch.nn.Module):
            return _outputs(torch.func.functional_call(function, own, tuple(given.values()), dict(attributes)))
        return _outputs(function(*values, **attributes))

    try:
        with mode:
            tensors = list(_empty(types).values())
        with torch.no_grad(), quiet(), noted_calls() as calls:
            if make is None:
                module = make_fx(call, pre_dispatch=True)(*tensors)
            else:
                with mode:
                    module = make(call, tensors)
            for node, name in zip(module.graph.find_nodes(op="placeholder"), names):
                node.name = node.target = name
            graph = from_graph_module(module).with_operators(calls).load()
            if any(node.effect is Effect.MUTATES for node in graph.nodes):
                with _InPlace({id(tensor): name for name, tensor in zip(names, tensors)}):
                    call(*tensors)
    except (FrontEndError, PatternError):
        raise
    except Exception as error:
        raise _refusal(error) from error
    return graph


def equal_sizes(
    functions: Sequence[Callable[..., Any]], types: Mapping[str, TensorType], attributes: Mapping[str, Any]
) -> tuple[dict[str, tuple[int | str, ...]], list[tuple[str, ...]]]:
    """The sizes of tensors that functions need to be equal, as equal names, and the dtypes of what each function
    returns; sizes of 1 stay numbers.

    Each function is run with tensors of these types by name, whose sizes are symbols that only calls make equal.
    Raises FrontEndError, with the line of the function, where a call fails with these types.
    """
    environment = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    tensors: dict[str, torch.Tensor] = {}
    for name, example in _empty(types).items():
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * example.ndim)
        tensors[name] = mode.from_tensor(example, symbolic_context=context, source=ConstantSource(name))
    with mode, torch.no_grad(), quiet():
        outputs = [_called(function, tensors, attributes) for function in functions]

    def name_of(size: Any) -> int | str:
        found = environment.simplify(size.node.expr) if isinstance(size, torch.SymInt) else size
        return int(found) if isinstance(found, int) or found.is_Integer else str(found)

    sizes = {name: tuple(map(name_of, tensor.shape)) for name, tensor in tensors.items()}
    return sizes, [tuple(dtype_name(output.dtype) for output in own) for own in outputs]


def output_types(
    function: Callable[..., Any], types: Mapping[str, TensorType], attributes: Mapping[str, Any]
) -> tuple[TensorType, ...]:
    """The types of what a function returns for tensors of these types by name. FrontEndError, with the line of the
    function, where a call fails with these types."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), quiet():
        found = _called(function, _empty(types), attributes)
    return tuple(TensorType.of(output) for output in found)


def _empty(types: Mapping[str, TensorType]) -> dict[str, torch.Tensor]:
    return {name: torch.empty(cast(tuple[int, ...], type.shape), dtype=getattr(torch, type.dtype))
            for name, type in types.items()}  # fmt: skip


def _called(
    function: Callable[..., Any], tensors: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    try:
        return _outputs(function(**tensors, **attributes))
    except (FrontEndError, PatternError):
        raise
    except Exception as error:
        raise _refusal(error) from error


def _outputs(found: Any) -> tuple[Any, ...]:
    outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise PatternError(
                f"expected that it returns a tensor or a tuple of tensors, but found a {type(output).__name__} in what "
                "it returns"
            )
    return outputs


class _InPlace(TorchFunctionMode):
    """Raises PatternError for the first call that changes a tensor."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names = names
        """The names of the arguments, by the identity of their tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        versions = [tensor._version for tensor in tensors]
        result = func(*args, **(kwargs or {}))
        for tensor, version in zip(tensors, versions):
            if tensor._version != version:
                what = f"its argument {self.names[id(tensor)]}" if id(tensor) in self.names else "a tensor"
                raise PatternError(
                    f"{_place(traceback.extract_stack())}{getattr(func, '__name__', func)} changes {what} in place; a "
                    "rule is about values, so write the call that returns a new tensor: add for add_, a + b for a += b"
                )
        return result


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """The line of the user's code among frames, as the beginning of a message; nothing where there is none."""
    own = [frame for frame in frames if not frame.filename.startswith((_TORCH, _OWN, "<"))]
    return f"{Location(own[-1].filename, own[-1].lineno or 0)}: " if own else ""


def _refusal(error: Exception) -> FrontEndError | PatternError:
    """The error, and the line of the function in which it stands."""
    place = _place(traceback.extract_tb(error.__traceback__))
    if type(error).__name__ in _VALUE_ERRORS or any(word in str(error) for word in _VALUE_WORDS):
        return PatternError(
            f"{place}the function looks at the value of a tensor, which no graph tells; a rule holds for all values: "
            "write a rule for each branch, or torch.where"
        )
    if _LIST_WORDS in str(error):
        return PatternError(
            f"{place}a list of tensors is expected where a parameter stands, and each parameter is one tensor: give "
            "each tensor of the list a parameter of its own, as in f(x, y): torch.cat([x, y]); for any number of them, "
            "write the rule of patterns, with pat.Variadic"
        )
    text = str(error).strip().split("\n")[0]
    return FrontEndError(f"{place}{type(error).__name__}: {text}")
