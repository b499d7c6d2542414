"""The meaning of calls: their values on torch tensors, and their types."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from gsl.graph.types import TensorType, TupleType, Type
from gsl.spec.spec import OpSpec, Types
from gsl.spec.symbolic import SymbolSizes, has_symbols, whatever_sizes

Operand = Type | bool | int | float | None
"""The known facts about an operand: its type, or the number that it is, or nothing."""


def evaluate(spec: OpSpec, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The value of a call on torch tensors, Python numbers, and tuples of tensors. ValueError for bad attributes."""
    import torch

    own = _own_attrs(spec, attrs, tuple(map(_type_of, operands)))
    if has_symbols(own):
        unknown = {name: value for name, value in own.items() if has_symbols(value)}
        raise ValueError(f"{spec.name}: a value needs known sizes, found {unknown}")
    return _run(torch, spec, operands, own)


def infer(spec: OpSpec, operands: Sequence[Operand], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call, or ``None`` where the type of an operand is not known.

    Raises ValueError with torch's reason if the call is ill-typed, and also if its type depends on the values of
    symbolic sizes. A call that only a kernel refuses (``bitwise_and`` of floats) counts as well-typed.
    """
    operands = tuple(operands)
    if not all(map(_is_known, operands)):
        return None
    call = _Call(spec, operands, attrs)
    try:
        hash(call)
    except TypeError:
        found = _infer(call)
    else:
        found = _infer_cached(call)
    if isinstance(found, ValueError):
        raise ValueError(*found.args)
    return found


def _is_known(operand: Operand) -> bool:
    if isinstance(operand, TupleType):
        return all(map(_is_known, operand.fields))
    return operand is not None


class _Call:
    """A call as a key. Equality tells ``True``, ``1`` and ``1.0`` apart."""

    __slots__ = ("attrs", "key", "operands", "spec")

    def __init__(self, spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> None:
        self.spec = spec
        self.operands = operands
        self.attrs = attrs
        self.key = (spec.name, spec.meaning, _typed(operands), tuple([(name, _typed(attrs[name])) for name in attrs]))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.key == other.key


def _typed(value: Any) -> Any:
    return tuple(map(_typed, value)) if type(value) is tuple else (type(value), value)


def _infer(call: _Call) -> Type | ValueError:
    """The type of a call, or why it has none."""
    spec, operands = call.spec, call.operands
    types = tuple([None if _is_number(operand) else operand for operand in operands])
    try:
        attrs = _own_attrs(spec, call.attrs, types)  # type: ignore[arg-type]
        if has_symbols(operands) or has_symbols(attrs):
            return _infer_symbolic(spec, operands, attrs)
        from torch._subclasses.fake_tensor import FakeTensorMode

        return _fake_run(FakeTensorMode(), lambda value: value, spec, operands, attrs)
    except ValueError as error:
        return error


_infer_cached: Callable[[_Call], Type | ValueError] = lru_cache(maxsize=8192)(_infer)


def _infer_symbolic(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type:
    """The type of a call with symbolic sizes, which has to be the same for all sizes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run(sizes: SymbolSizes) -> Type:
        return _fake_run(FakeTensorMode(shape_env=sizes.env), sizes.concrete, spec, operands, attrs)

    return whatever_sizes(spec.name, run, operands, attrs)


def _fake_run(
    mode: Any, concrete: Callable[[Any], Any], spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]
) -> Type:
    """The type of a call by a run on tensors without data, whose sizes are made by ``concrete``."""
    import torch

    def fake(operand: Any) -> Any:
        if isinstance(operand, TupleType):
            return tuple(map(fake, operand.fields))
        if isinstance(operand, TensorType):
            return torch.empty(concrete(operand.shape), dtype=getattr(torch, operand.dtype))
        return operand

    try:
        with mode, torch.no_grad(), torch._C._DisableAutocast(), quiet():
            found = _type_of(_run(torch, spec, tuple(map(fake, operands)), concrete(dict(attrs))))
    except Exception as error:
        # Whatever torch's kernels raise, the call is ill-typed; the first line has the reason.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{spec.name}: {reason}") from None
    if found is None:
        raise ValueError(f"{spec.name}: the result is not a tensor")
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Silence while torch runs: it logs errors with a traceback, beside raising them."""
    log = logging.getLogger("torch._subclasses.fake_tensor")

    def drop(record: logging.LogRecord) -> bool:
        return False

    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


def _own_attrs(spec: OpSpec, attrs: Mapping[str, Any], types: Types) -> dict[str, Any]:
    """The attributes that the meaning takes: canonical for these types, without those that follow from them."""
    given = {name: value for name, value in attrs.items() if name not in spec.attrs or spec.attrs[name].derive is None}
    try:
        full = spec.complete(given, types)
    except KeyError as error:
        raise ValueError(f"{spec.name} has no attribute {error.args[0]!r}") from None
    return {name: value for name, value in full.items() if spec.attrs[name].derive is None}


def _run(torch: Any, spec: OpSpec, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    result = spec.meaning(torch, *operands, **attrs)
    return tuple(result) if spec.fields else result


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _type_of(value: Any) -> Type | None:
    """The type of a tensor or a tuple of tensors; ``None`` for anything else."""
    if isinstance(value, (tuple, list)):
        return TupleType(tuple(map(_type_of, value)))
    if not hasattr(value, "dtype"):
        return None
    return TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
