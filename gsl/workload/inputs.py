"""The inputs of a workload: bound by position or by name, checked against their types, or made at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gsl.errors import WorkloadError, check_number, nearest
from gsl.graph import Dim, SymDim, TensorType, Type

Draw = Callable[[Any, tuple[int, ...], Any, Any], Any]
"""Makes with torch, which it is given, a tensor of a shape and a real dtype (float32 or float64) with a generator."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to draw floats. Integers and booleans are drawn from the range of the example in any case."""

    name: str
    draw: Draw
    masks: bool = False
    """True if an example with two distinct values is taken for a mask, and its values are drawn again."""


def _normal(scale: float) -> Draw:
    return lambda torch, shape, dtype, generator: torch.randn(shape, generator=generator, dtype=dtype) * scale


def _uniform(low: float, high: float) -> Draw:
    return lambda torch, shape, dtype, generator: (
        torch.rand(shape, generator=generator, dtype=dtype) * (high - low) + low
    )


def _integers(low: int, high: int) -> Draw:
    return lambda torch, shape, dtype, generator: torch.randint(low, high + 1, shape, generator=generator).to(dtype)


def _among(*values: float, share: float = 1.0) -> Draw:
    """Values from a list; of the others, whose share is the rest, normal ones."""

    def draw(torch: Any, shape: tuple[int, ...], dtype: Any, generator: Any) -> Any:
        chosen = torch.tensor(values, dtype=dtype)[torch.randint(len(values), shape, generator=generator)]
        others = _normal(1.0)(torch, shape, dtype, generator)
        return torch.where(torch.rand(shape, generator=generator) < share, chosen, others)

    return draw


_INFINITY, _NAN = float("inf"), float("nan")

STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        Strategy("normal", _normal(1.0), masks=True),
        Strategy("small", _normal(1e-3)),
        Strategy("large", _normal(1e2)),
        Strategy("positive", _uniform(1e-3, 1.0)),
        Strategy("integers", _integers(-8, 8)),
        Strategy("special", _among(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 6.0, 1e-6, -1e-6, share=0.8)),
        Strategy("nonfinite", _among(_INFINITY, -_INFINITY, _NAN, share=0.05)),
    )
}
"""The strategies by name. ``integers`` are exact in every dtype; ``special`` has ties, signed zeros, and the points at
which activations have their corners; ``nonfinite`` has a few infinities and NaNs."""


def strategy(given: Any) -> Strategy:
    """The strategy of a name, or of a range ``(low, high)`` in which floats lie evenly. WorkloadError for others."""
    if isinstance(given, str):
        if given not in STRATEGIES:
            raise WorkloadError(f"there is no strategy {given!r}; {nearest(given, STRATEGIES)}, or a range (low, high)")
        return STRATEGIES[given]
    if isinstance(given, (tuple, list)) and len(given) == 2:
        low, high = given
        if all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in given) and low <= high:
            return Strategy(f"[{low:g}, {high:g})", _uniform(low, high))
    raise WorkloadError(f"a strategy is one of {', '.join(STRATEGIES)}, or a range (low, high); got {given!r}")


def as_tensor(value: Any) -> Any:
    """A tensor of torch, numpy or TVM as a torch tensor, which shares its memory if possible.

    None for anything else, and for elements that torch does not have, as strings and numbers of four bits.
    """
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_numpy(np.ascontiguousarray(value).reshape(value.shape))
    if type(value).__module__.partition(".")[0] == "tvm" and hasattr(value, "numpy"):
        from gsl.front.tvm import tensors

        return tensors.to_torch(value)
    return _of_numpy(np.array(value.numpy())) if hasattr(value, "numpy") else None


def _of_numpy(array: Any) -> Any:
    """An array as a tensor. Arrays of bfloat16 and float8 are of the package ml_dtypes, which torch does not know."""
    import numpy as np
    import torch

    if array.dtype.name.startswith(("bfloat16", "float8")):
        bits = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    if array.dtype.kind not in "biufc":
        return None
    return torch.from_numpy(array if array.flags.writeable else array.copy())


InputTypes = Mapping[str, Type | None]
"""The inputs by name, in order."""
NOWHERE: Final[Mapping[str, Any]] = MappingProxyType({})
"""The devices of inputs, of which none is known; and the ranges of sizes, where all are taken."""
Ranges = Mapping[str, tuple[int, int | None]]
"""The least and the largest value that a program takes for symbolic sizes, by their names."""


def bind(
    who: str,
    types: InputTypes,
    defaults: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    casts: bool = False,
    devices: Mapping[str, Any] = NOWHERE,
    ranges: Ranges = NOWHERE,
) -> list[Any]:
    """The inputs in order, from values by position and by name; arrays of numpy and TVM become torch tensors.

    ``who`` names the workload in messages. Arrays have no device, and go to those of ``devices``. ``casts`` makes
    floats of numpy those of the input. Raises WorkloadError for a wrong number, an unknown, doubled or missing name,
    a value that does not have the type, or a symbolic size outside of its range.
    """
    names = list(types)
    args = _leaves(who, names, args)
    if len(args) > len(names):
        raise WorkloadError(
            f"{who} takes {len(names)} input{'s' * (len(names) != 1)} ({_signature(types)}), but {len(args)} were given"
        )
    values = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in types:
            raise WorkloadError(f"{who} has no input {name!r}; {nearest(name, names)}")
        if name in values:
            raise WorkloadError(f"{who}: the input {name!r} was given twice, by position and by name")
        values[name] = value
    missing = [name for name in names if name not in values and name not in defaults]
    if missing:
        raise WorkloadError(
            f"{who}: no value for the input {', '.join(map(repr, missing))}; it takes ({_signature(types)})"
        )
    bound = [as_native(values[name], devices.get(name)) if name in values else defaults[name] for name in names]
    if casts:
        bound = [_cast(value, values.get(name), types[name]) for name, value in zip(names, bound)]
    sizes: dict[Any, int] = {}
    for (name, type), value in zip(types.items(), bound):
        if name in values:
            _check(who, name, type, value, sizes)
    _check_ranges(who, types, sizes, ranges)
    return bound


def random(
    who: str,
    types: InputTypes,
    examples: Sequence[Any] | None,
    *,
    seed: int,
    sizes: Mapping[str, int] | None = None,
    devices: Mapping[str, Any] = NOWHERE,
    ranges: Ranges = NOWHERE,
    keep_integers: bool = False,
    strategy: Strategy = STRATEGIES["normal"],
) -> list[Any]:
    """Inputs that have the types: floats by a strategy, integers within the range of the example (0 and 1 without one).

    A float example with two distinct values is taken for a mask, and its values are drawn again, if the strategy says
    so. A symbolic size is the example's, or that of ``sizes``; the device is the example's, or that of ``devices``.
    ``keep_integers`` leaves examples that are not floats as they are.
    """
    import torch

    check_number("seed", seed, "a whole number", error=WorkloadError)
    if not (sizes is None or isinstance(sizes, Mapping)):
        raise WorkloadError(f"sizes= gives symbolic sizes by name, as {{'batch': 4}}, got {sizes!r}")
    symbols = {str(symbol) for type in types.values() for symbol in _symbols(type)}
    for symbol in sizes or {}:
        if symbol not in symbols:
            raise WorkloadError(
                f"{who} has no symbolic size {symbol!r}; {nearest(symbol, symbols)} in ({_signature(types)})"
            )
    known = _known_sizes(types, examples, sizes or {})
    _check_ranges(who, types, known, ranges)
    generator = torch.Generator("cpu").manual_seed(seed)
    result: list[Any] = []
    for index, (name, type) in enumerate(types.items()):
        example = None if examples is None else examples[index]
        if example is not None and not isinstance(example, torch.Tensor):
            result.append(example)
            continue
        if type is None and example is not None:
            type = TensorType.of(example)
        if not isinstance(type, TensorType):
            if examples is not None:
                result.append(example)
                continue
            raise WorkloadError(
                f"{who}: the input {name!r} has {'no known type' if type is None else f'the type {type}'}, so that no "
                f"random value can be made; give inputs=, or make the workload with example inputs"
            )
        as_it_is = example is not None and (example.layout != torch.strided or example.is_quantized)
        if as_it_is or (keep_integers and example is not None and not example.dtype.is_floating_point):
            result.append(example)
            continue
        shape = [_size(who, name, expected, known) for expected in type.shape]
        with torch.device("cpu"):  # that of the generator, whatever the default is
            value = _strided(_draw(shape, getattr(torch, type.dtype), example, generator, strategy), example)
        result.append(value.to(devices.get(name) if example is None else example.device))
    return result


def as_native(value: Any, device: Any = None) -> Any:
    """A tensor of numpy or TVM as a torch tensor, on that device if there is one; anything else as it is."""
    tensor = as_tensor(value) if hasattr(value, "shape") and hasattr(value, "dtype") else None
    return value if tensor is value or tensor is None else tensor.to(device)


def misplaced(values: Mapping[str, Any], devices: Mapping[str, Any]) -> str | None:
    """The message on the first input that lies on another device than its own, which is the CPU unless told; ``None``
    if none does."""
    import torch

    for name, value in values.items():
        device = torch.device(devices.get(name) or "cpu")
        if not isinstance(value, torch.Tensor) or not (value.ndim or value.is_meta):
            continue  # torch takes numbers from anywhere
        places = value.device.index, device.index
        if value.device.type != device.type or (None not in places and places[0] != places[1]):
            return f"the input {name!r} should lie on {device}, but lies on {value.device}; give it there"
    return None


def _cast(value: Any, given: Any, type: Type | None) -> Any:
    """An input that was given as floats of numpy, as floats of the type."""
    import numpy as np
    import torch

    if not isinstance(type, TensorType) or not isinstance(given, (np.ndarray, np.generic)):
        return value
    dtype = getattr(torch, type.dtype)
    return value.to(dtype) if value.dtype.is_floating_point and dtype.is_floating_point else value


def _leaves(who: str, names: Sequence[str], args: Sequence[Any]) -> Sequence[Any]:
    """The leaves of structured arguments; the arguments themselves, where these are the inputs of a traced module. The
    order of a mapping's keys may not be that of the inputs, so the names of the inputs have to end with the keys, as
    ``torch.export`` makes them (``flags_a`` for ``flags["a"]``)."""
    import torch.utils._pytree as pytree

    if all(map(pytree.tree_is_leaf, args)):
        return args
    leaves = pytree.tree_flatten_with_path(tuple(args))[0]
    if len(leaves) > len(names) >= len(args):
        return args
    for name, (path, _) in zip(names, leaves):
        keys = [str(next(getattr(entry, of) for of in ("key", "idx", "name") if hasattr(entry, of))) for entry in path]
        if any(isinstance(entry, pytree.MappingKey) for entry in path) and not name.endswith("_".join(["", *keys[1:]])):
            raise WorkloadError(
                f"{who}: {pytree.keystr(path[1:])} of an argument is not the input {name!r}; give the inputs by name: "
                f"{', '.join(names)}"
            )
    return [leaf for _, leaf in leaves]


def _signature(types: InputTypes) -> str:
    return ", ".join(name if type is None else f"{name}: {type}" for name, type in types.items())


def _check(who: str, name: str, type: Type | None, value: Any, sizes: dict[Any, int]) -> None:
    """Raise WorkloadError unless the value has the type; symbols are bound in ``sizes`` as they are met."""
    if not isinstance(type, TensorType):
        return
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise WorkloadError(
            f"{who}: the input {name!r} should be a tensor {type}, but is {value!r:.60} of type "
            f"{value.__class__.__name__}; make it one with torch.tensor or numpy"
        )
    found = TensorType.of(value)
    if found.dtype != type.dtype:
        raise WorkloadError(
            f"{who}: the input {name!r} should be {type}, but is {found}; convert it to {type.dtype} first"
        )
    fits = found.ndim == type.ndim and all(
        _same_size(expected, int(size), sizes) for expected, size in zip(type.shape, value.shape)
    )
    if not fits:
        known = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
        raise WorkloadError(
            f"{who}: the input {name!r} should be {type}, but is {found}" + (f" (with {known})" if known else "")
        )


def _check_ranges(who: str, types: InputTypes, sizes: Mapping[Any, int], ranges: Ranges) -> None:
    """Raise WorkloadError for a symbolic size outside of the range that the program was made for."""
    for symbol, size in sizes.items():
        low, high = ranges.get(str(symbol), (0, None))
        if size < low or not (high is None or size <= high):
            name = next(name for name, type in types.items() if symbol in _symbols(type))
            raise WorkloadError(
                f"{who}: the input {name!r} is {types[name]} with {symbol} from {low}"
                f"{' on' if high is None else f' to {high}'}, but {symbol} = {size} was given; give another size, or "
                "export the model with other dynamic_shapes"
            )


def _same_size(expected: Dim, size: int, sizes: dict[Any, int]) -> bool:
    if not isinstance(expected, SymDim):
        return expected == size
    expr = expected.expr.subs(sizes)
    free = expr.free_symbols
    if not free:
        return bool(expr == size)
    symbol = min(free, key=str)
    slope = expr.subs(symbol, 1) - expr.subs(symbol, 0)
    start = expr - slope * symbol
    if slope.is_Integer and start.is_Integer:
        value = (size - start) / slope
        if value.is_Integer:
            sizes[symbol] = int(value)
        return bool(value.is_Integer)
    # Another expression with unknown symbols is left to the program's own guards.
    return True


def _symbols(type: Type | None) -> set[Any]:
    if not isinstance(type, TensorType):
        return set()
    return {symbol for d in type.shape if isinstance(d, SymDim) for symbol in d.expr.free_symbols}


def _known_sizes(types: InputTypes, examples: Sequence[Any] | None, sizes: Mapping[str, int]) -> dict[Any, int]:
    """The value of each symbol of which one is known: given, or met as a size of an example."""
    known: dict[Any, int] = {}
    for type, example in zip(types.values(), examples or ()):
        if isinstance(type, TensorType) and hasattr(example, "shape"):
            for expected, size in zip(type.shape, example.shape):
                if isinstance(expected, SymDim) and expected.expr.is_Symbol:
                    known.setdefault(expected.expr, int(size))
    for symbol in set().union(*map(_symbols, types.values())):
        if str(symbol) in sizes:
            known[symbol] = sizes[str(symbol)]
    return known


def _size(who: str, name: str, expected: Dim, known: Mapping[Any, int]) -> int:
    if not isinstance(expected, SymDim):
        return expected
    expr = expected.expr.subs(known)
    if not expr.is_Integer:
        symbol = str(min(expr.free_symbols, key=str))
        raise WorkloadError(
            f"{who}: the size {expected} of the input {name!r} is symbolic; give it, as in sizes={{{symbol!r}: 4}}, "
            f"or in a shell --sizes {symbol}=4"
        )
    return int(expr)


def _strided(value: Any, example: Any) -> Any:
    """The value with its axes in memory in the order of those of the example, if that is dense."""
    if example is None:
        return value
    order = sorted(range(example.ndim), key=lambda axis: -example.stride(axis))
    if order == sorted(order) or not example.permute(order).is_contiguous():
        return value
    return value.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])


def _draw(shape: Sequence[int], dtype: Any, example: Any, generator: Any, strategy: Strategy) -> Any:
    import torch

    usable = example is not None and example.numel() > 0 and example.device.type != "meta"
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        if strategy.masks and usable and example.numel() > 2 and dtype.is_floating_point:
            values = example.detach().cpu().to(torch.float64).unique()
            if values.numel() == 2:
                return values[torch.randint(values.numel(), tuple(shape), generator=generator)].to(dtype)
        if dtype.is_complex:
            parts = [strategy.draw(torch, tuple(shape), torch.float64, generator) for _ in range(2)]
            return torch.complex(*parts).to(dtype)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return strategy.draw(torch, tuple(shape), wide, generator).to(dtype)
    low, high = (int(example.min()), int(example.max())) if usable else (0, 1)
    return torch.randint(low, high + 1, tuple(shape), generator=generator).to(dtype)
