"""Operators of torch that this package defines, and the weights that they pack at run time."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

_LIBRARY: Final[Any] = torch.library.Library("gsl", "FRAGMENT")  # type: ignore[no-untyped-call]
_BELOW: Final[Any] = torch._C._after_autograd_keyset
_INNER: Final[int] = torch._C._after_ADInplaceOrView_keyset.raw_repr()
Kernel = Callable[..., torch.Tensor]
_KERNELS: Final[dict[Any, dict[int, Kernel]]] = {}
"""The kernels of each operator, by the dispatch keys of ordinary tensors of a device, on which nothing like a mode is
at work."""


def _keys(*names: str) -> int:
    own: Any = torch._C.DispatchKeySet
    found: int = reduce(or_, (own(getattr(torch._C.DispatchKey, name)).raw_repr() for name in names))
    return found


_CPU: Final = _keys("CPU")


def register(
    schema: str, kernel: Callable[..., Any], formula: Callable[..., Any], *, overwritable: str | None = None
) -> Any:
    """The operator of a schema, whose ``kernel`` is for the CPU without gradients, and which is elsewhere a formula.

    The formula is written in torch's own functions; gradients, other devices and tensors without data use it. To
    tracers and compilers the operator is one call. The kernel may write its result into the ``overwritable`` operand,
    if it is told so by ``overwrites=True``.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.gsl, name).default
    kernels = _KERNELS[operator] = {}
    if overwritable is not None:
        names = [argument.name for argument in operator._schema.arguments]
        _OVERWRITABLE[operator] = names.index(overwritable)

    def autograd(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            return formula(*args, **kwargs)
        plain = kernels.get(keys.raw_repr() & _INNER)
        if plain is not None:
            return plain(*args, **kwargs)
        return operator.redispatch(keys & _BELOW, *args, **kwargs)

    _LIBRARY.impl(name, formula, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
    torch.library.register_fake(f"gsl::{name}", formula, lib=_LIBRARY)
    add_kernel(operator, "CPU", kernel)
    return operator


def add_kernel(operator: Any, key: str, kernel: Kernel) -> None:
    """Let a kernel compute an operator without gradients on the device of that dispatch key."""
    _LIBRARY.impl(operator._opname, kernel, key)
    _KERNELS[operator][_keys(key)] = kernel


_OVERWRITABLE: Final[dict[Any, int]] = {}
"""The places of the operands that kernels may overwrite."""


def overwritable_place(operator: Any) -> int | None:
    """The place of the operand that the kernel of an operator may overwrite."""
    return _OVERWRITABLE.get(operator)


def kernel_on_cpu(operator: Any) -> Kernel | None:
    """The kernel that computes an operator for values that are plain (:func:`is_plain`)."""
    return _KERNELS.get(operator, {}).get(_CPU)


_PLAIN_CLASSES: Final = (torch.Tensor, torch.nn.Parameter)
_PLAIN_KEYS: Final = _keys("CPU", "ADInplaceOrView", "AutogradCPU", "AutocastCPU")
"""The dispatch keys of ordinary tensors on a CPU."""
_ALWAYS_KEYS: Final = _keys("BackendSelect", "ADInplaceOrView")
"""Those that are added to calls where nothing is at work."""


def is_plain(values: Iterable[Any]) -> bool:
    """True if calls with these values come to the kernels for the CPU: their tensors are ordinary ones there, no
    gradients are recorded, and nothing sees the calls, like a tracer, a mode, a transform or a profiler."""
    c: Any = torch._C
    if torch.compiler.is_dynamo_compiling() or torch.is_grad_enabled() or c._autograd._profiler_enabled():
        return False
    if c._len_torch_function_stack() or c._dispatch_tls_local_include_set().raw_repr() & ~_ALWAYS_KEYS:
        return False
    return not any(
        isinstance(value, torch.Tensor)
        and (type(value) not in _PLAIN_CLASSES or c._dispatch_keys(value).raw_repr() & ~_PLAIN_KEYS)
        for value in values
    )


def is_packable(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """True if a weight may be packed: single precision throughout, and versions that tell when it was changed."""
    f = torch.float32
    if x.dtype != f or weight.dtype != f or weight.is_inference() or weight.layout != torch.strided:
        return False
    return bias is None or (bias.dtype == f and not bias.is_inference())


# ---------------------------------------------------------------- activations


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation: as a function, on memory that may be overwritten, and under oneDNN's name."""

    function: Callable[[torch.Tensor], torch.Tensor]
    in_place: Callable[[torch.Tensor], torch.Tensor]
    name: str
    algorithm: str = ""
    bounds: tuple[float, ...] = ()

    @property
    def onednn(self) -> tuple[str, list[float], str]:
        """The arguments by which a kernel of oneDNN is told of it."""
        return self.name, list(self.bounds), self.algorithm


ACTIVATIONS: Final = {
    "none": Activation(lambda x: x, lambda x: x, "none"),
    "relu": Activation(F.relu, torch.relu_, "relu"),
    "relu6": Activation(F.relu6, partial(F.relu6, inplace=True), "hardtanh", bounds=(0.0, 6.0)),
    "gelu": Activation(F.gelu, torch.ops.aten.gelu_.default, "gelu", "none"),
    "gelu_tanh": Activation(
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: torch.ops.aten.gelu_.default(x, approximate="tanh"),
        "gelu",
        "tanh",
    ),
    "silu": Activation(F.silu, torch.ops.aten.silu_.default, "swish"),
    "tanh": Activation(torch.tanh, torch.tanh_, "tanh"),
    "sigmoid": Activation(torch.sigmoid, torch.sigmoid_, "sigmoid"),
    "hardswish": Activation(F.hardswish, torch.ops.aten.hardswish_.default, "hardswish"),
    "hardsigmoid": Activation(F.hardsigmoid, torch.ops.aten.hardsigmoid_.default, "hardsigmoid"),
}
"""The activations, by the name that the operators take."""

INT8_CONV: Final = frozenset(("none", "relu", "hardtanh", "swish", "hardswish"))
"""Those that oneDNN computes with a convolution of whole numbers, by its names."""
INT8_LINEAR: Final = INT8_CONV | {"gelu", "tanh"}
"""The same for linear layers."""


PackWeight = Callable[[], Any]


@dataclass(slots=True)
class _Entry:
    """The packed form of a weight, and the versions of the weight and its bias from which it was made."""

    weight: weakref.ref[Any]
    """The weight's memory; when that goes, so does the entry."""
    bias: Any
    """The bias' memory, which is held: its address is part of the key."""
    versions: tuple[int, int]
    made: Any
    """``None`` before the second use."""
    captured: list[Any]
    """The forms, also earlier ones, that CUDA graphs read at each replay: they stay as long as the weight."""


_ENTRIES: Final[dict[Hashable, _Entry]] = {}
NEVER: Final = (-1, -1)
"""The versions of no tensors."""


def packed(
    weight: torch.Tensor, bias: torch.Tensor | None, how: Hashable, make: PackWeight, *, captures: bool = False
) -> Any:
    """The object that ``make`` makes of a weight and a bias, ``None`` at the first use of them.

    A weight that is computed anew for each call is so never packed. Views of the same memory, that lie in it alike,
    share what is made. It is made again when torch's version counters tell that a tensor was changed, and after a step
    of an optimiser. While a CUDA graph ``captures`` the call, nothing is made, which would belong to the graph.
    """
    memory = weight.untyped_storage()
    key: Hashable
    if bias is None:
        held, versions = None, (weight._version, 0)
        key = (id(memory), weight.storage_offset(), weight.shape, weight.stride(), how)
    else:
        held, versions = bias.untyped_storage(), (weight._version, bias._version)
        key = (
            id(memory), weight.storage_offset(), weight.shape, weight.stride(), how,
            id(held), bias.storage_offset(), bias.stride(),
        )  # fmt: skip
    entry = _ENTRIES.get(key)
    if entry is None or entry.versions != versions:
        gone = weakref.ref(memory, lambda _: _ENTRIES.pop(key, None))
        _ENTRIES[key] = _Entry(gone, held, versions, None, [] if entry is None else entry.captured)
        return None
    if captures:
        if entry.made is not None and entry.made not in entry.captured:
            entry.captured.append(entry.made)
    elif entry.made is None:
        entry.made = make()
    return entry.made


def _forget_trained(optimiser: torch.optim.Optimizer, *_: Any) -> None:
    """Forget what was packed of weights of which an optimiser made a step: fused ones change them uncounted."""
    if not _ENTRIES:
        return
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    changed = {id(weight.untyped_storage()) for weight in weights if weight.layout == torch.strided}
    for entry in list(_ENTRIES.values()):
        if {id(entry.weight()), id(entry.bias)} & changed:
            entry.versions, entry.made = NEVER, None


register_optimizer_step_post_hook(_forget_trained)


def entries() -> list[Any]:
    """The kept entries: a packed form for each weight, or ``None`` for a weight that was used once."""
    return [entry.made for entry in list(_ENTRIES.values())]


def clear() -> None:
    """Forget all packed weights, and free their memory. Calls after that pack anew.

    CUDA graphs that were captured before must not be replayed after it.
    """
    _ENTRIES.clear()


# ---------------------------------------------------------------- the fastest way


ROUNDS: Final = (5, 30)
"""The least and the most rounds in which the ways of a call are timed."""
SECONDS: Final = 0.02
"""The time after which there are no more rounds than the least. In so few, chance decides between short calls."""
PLAIN: Final = {"plain": 0.97}
"""The plain way counts as this share of its time: it is left only for one that gains more."""

_LOCK: Final = threading.Lock()
_CHOICES: Final[dict[Hashable, str]] = {}


def seconds_on_cpu(call: Callable[[], object]) -> float:
    """The seconds of a call: with one thread those of this thread, which other work on the machine disturbs less."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    call()
    return clock() - start


def fastest(
    shape: Hashable,
    factors: Mapping[str, float],
    ways: Mapping[str, Callable[[], Kernel | None]],
    *args: Any,
    seconds: Callable[[Callable[[], object]], float] = seconds_on_cpu,
) -> Kernel:
    """The run of the fastest way, by the ``seconds`` of a call, times the factor of the way if it has one.

    ``None`` made by a way says that it is not to be had here.

    The choice is made once for each shape and number of threads, so that equal layers compute alike.
    """
    shape = (shape, torch.get_num_threads())
    with _LOCK:
        chosen = _CHOICES.get(shape)
        if chosen is None:
            runs = {name: run for name, make in ways.items() if (run := make()) is not None}
            calls = {name: partial(run, *args) for name, run in runs.items()}
            chosen = _CHOICES[shape] = _fastest(factors, calls, seconds)
            return runs[chosen]
        run = ways[chosen]()
        assert run is not None
        return run


def _fastest(
    factors: Mapping[str, float], calls: Mapping[str, Callable[[], object]],
    seconds: Callable[[Callable[[], object]], float],
) -> str:  # fmt: skip
    """The name of the fastest call. They take turns, and the first turn, a warm one, does not count."""
    least = dict.fromkeys(calls, math.inf)
    fewest, most = ROUNDS
    start = time.perf_counter()
    for turn in range(most + 1):
        if turn > fewest and time.perf_counter() - start > SECONDS:
            break
        for name, call in calls.items():
            taken = seconds(call)
            if turn:
                least[name] = min(least[name], taken)
    return min(least, key=lambda name: least[name] * factors.get(name, 1.0))


def choices() -> dict[Hashable, str]:
    """The way that was chosen for each shape and number of threads so far."""
    return dict(_CHOICES)
