"""The meaning of calls: their values on torch tensors, and their types, also of symbolic sizes."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from gsl.errors import is_exhaustion
from gsl.graph.types import SymDim, TensorType, TupleType, Type, dim
from gsl.spec import packed
from gsl.spec.normalise import is_number
from gsl.spec.spec import OpSpec, Trait, Types

_MOST_ELEMENTS: Final = 4096
"""The most elements of the operands of a run with data."""

_LARGE: Final = 1_000_000
_SMALL: Final = 2
"""The sizes of symbols when torch has to compare are the primes after these, which rarely equal anything else."""


def has_symbols(value: Any) -> bool:
    """True if a symbolic size occurs in a value: a type, an attribute, or a collection of them."""
    return bool(symbols_in(value))


def symbols_in(value: Any) -> list[SymDim]:
    """The symbolic sizes in a value, in order."""
    match value:
        case SymDim():
            return [value]
        case TensorType():
            return [size for size in value.shape if isinstance(size, SymDim)]
        case TupleType():
            items: Iterable[Any] = value.fields
        case tuple():
            items = value
        case dict():
            items = value.values()
        case _:
            return []
    return [size for item in items for size in symbols_in(item)]


class SymbolSizes:
    """A SymInt for each symbol that occurs in the types and attributes of a call.

    What is no polynomial in symbols with integer coefficients, like a quotient, is taken as a symbol of its own: what
    holds for all sizes holds for it too. So is a size of an operand that would be negative (``64 - Max(0, 64 - s)``).
    """

    def __init__(self, operands: Any, attrs: Any, *, small: bool = False, reverse: bool = False) -> None:
        import sympy
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.env = ShapeEnv(duck_shape=False)
        self._sympy = sympy
        self._ints: dict[Any, Any] = {}
        self._back: dict[Any, Any] = {}
        dims = [*symbols_in(operands), *symbols_in(attrs)]
        atoms = self._sorted_atoms(dims)
        values = dict(zip(atoms, sympy.primerange(_LARGE, math.inf)))
        whole = {d.expr for d in symbols_in(operands) if self._evaluate(d.expr, values) < 0}
        if whole:
            atoms = sorted({*whole, *self._sorted_atoms([d for d in dims if d.expr not in whole])}, key=str)
        hint = _SMALL if small else _LARGE
        for number, atom in enumerate(reversed(atoms) if reverse else atoms):
            hint = sympy.nextprime(hint)
            source = ConstantSource(f"size{number}")
            symbol = self.env.create_symbol(int(hint), source, DimDynamic.DYNAMIC, None)
            self._ints[atom] = self.env.create_symintnode(symbol, hint=int(hint), source=source)
            self._back[symbol] = atom

    def _sorted_atoms(self, dims: Iterable[SymDim]) -> list[Any]:
        return sorted({atom for d in dims for atom in self._atoms(d.expr)}, key=str)

    def _atoms(self, expr: Any) -> set[Any]:
        if expr.is_Integer:
            return set()
        if self._is_polynomial(expr):
            return {atom for part in expr.args for atom in self._atoms(part)}
        return {expr}

    def _is_polynomial(self, expr: Any) -> bool:
        if expr.is_Pow:
            return bool(expr.exp.is_Integer and expr.exp > 0)
        # A fraction among the factors: the product is an integer, and its parts are not.
        return bool(expr.is_Add or expr.is_Mul) and not any(
            number.is_Rational and not number.is_Integer for number in self._sympy.preorder_traversal(expr)
        )

    def _evaluate(self, expr: Any, values: Mapping[Any, Any]) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in values:
            return values[expr]
        if expr.is_Pow:
            return self._evaluate(expr.base, values) ** int(expr.exp)
        parts = [self._evaluate(part, values) for part in expr.args]
        value = parts[0]
        for part in parts[1:]:
            value = value + part if expr.is_Add else value * part
        return value

    def concrete(self, value: Any) -> Any:
        """A value with a SymInt for each symbolic size."""
        match value:
            case SymDim():
                return self._evaluate(value.expr, self._ints)
            case tuple():
                return tuple(map(self.concrete, value))
            case dict():
                return {name: self.concrete(item) for name, item in value.items()}
            case _:
                return value

    def symbolic(self, found: Type) -> Type:
        """A type with the symbolic sizes of the call for the SymInts."""
        if isinstance(found, TupleType):
            return TupleType(tuple([None if field is None else self.symbolic(field) for field in found.fields]))
        return TensorType(tuple([self._dim(size) for size in found.shape]), found.dtype)

    def _dim(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        return from_torch(size.expr if isinstance(size, SymDim) else size.node.expr, self._back)

    @property
    def specialised(self) -> str:
        """The conditions under which the run took sizes for equal or for numbers, if it did."""
        found = [guard.expr for guard in self.env.guards if guard.expr.func is self._sympy.Eq]
        equalities = [equality for equality in found if not self._holds_unless_empty(equality)]
        if not equalities and not self.env.replacements:
            return ""
        pairs = equalities or [self._sympy.Eq(a, b) for a, b in self.env.replacements.items()]
        return self._text(pairs)

    def _holds_unless_empty(self, equality: Any) -> bool:
        """True if two sides are equal for all tensors with elements, as strides are: they are products of max(1, size).

        How a tensor lies in memory is no part of its type.
        """
        from torch.utils._sympy.functions import Max

        def is_stride(part: Any) -> bool:
            return isinstance(part, Max) and len(part.args) == 2 and 1 in part.args

        def size(part: Any) -> Any:
            return next(arg for arg in part.args if arg != 1)

        if not equality.has(Max):
            return False
        left, right = (side.replace(is_stride, size) for side in equality.args)
        return bool(self._sympy.expand(left - right) == 0)

    @property
    def compared(self) -> str:
        """All conditions that the run decided by the sizes, if there are any."""
        return self._text([guard.expr for guard in self.env.guards])

    def _text(self, conditions: list[Any]) -> str:
        return ", ".join([str(condition.xreplace(self._back)) for condition in conditions])

    def named(self, text: str) -> str:
        """A message with the names of the symbols of the call for those of the run."""
        names = {str(symbol): str(atom) for symbol, atom in self._back.items()}
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)


def whatever_sizes(name: str, run: Callable[[SymbolSizes], Type], operands: Any, attrs: Any) -> Type:
    """The type of a call with symbolic sizes, which has to be the same for all sizes; ``run`` tells it for some.

    Raises ValueError, besides those of ``run``, if the type depends on the sizes.
    """

    def found_with(**regime: bool) -> tuple[Type, SymbolSizes]:
        sizes = SymbolSizes(operands, attrs, **regime)
        try:
            found = run(sizes)
        except ValueError as error:
            raise ValueError(sizes.named(str(error))) from None
        if sizes.specialised:
            raise ValueError(f"{name}: the type depends on the sizes at run time: {sizes.specialised}")
        return sizes.symbolic(found), sizes

    found, sizes = found_with()
    if not sizes.compared:
        return found
    # Torch compared sizes. Either that was a check, and it does not matter, or it chose between results: then
    # sizes that compare otherwise have another type, or are specialised on.
    for regime in ({"small": True}, {"reverse": True}, {"small": True, "reverse": True}):
        try:
            other, _ = found_with(**regime)
        except ValueError:
            continue
        if other != found:
            raise ValueError(f"{name}: the type depends on the sizes at run time: {sizes.compared}")
    return found


def from_torch(expr: Any, symbols: Mapping[Any, Any] | None = None) -> Any:
    """The dimension of the expression of a SymInt, with its symbols replaced; torch's division becomes sympy's."""
    import sympy
    from torch.utils._sympy import functions as f

    def rebuilt(part: Any) -> Any:
        if not part.args:
            return (symbols or {}).get(part, part)
        args = [rebuilt(arg) for arg in part.args]
        if isinstance(part, (f.FloorDiv, f.CleanDiv)):
            return sympy.floor(sympy.expand(args[0] / args[1]))
        if isinstance(part, (f.Mod, f.PythonMod)):
            return sympy.Mod(*args)
        if isinstance(part, (f.Max, f.Min)):
            return (sympy.Max if isinstance(part, f.Max) else sympy.Min)(*args)
        return part.func(*args)

    return dim(rebuilt(expr))


Operand = Type | bool | int | float | None
"""The known facts about an operand: its type, or the number that it is, or nothing."""


def evaluate(spec: OpSpec, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The value of a call on torch tensors, Python numbers, and tuples of tensors. ValueError for bad attributes."""
    import torch

    own = _own_attrs(spec, attrs, tuple(map(type_of, operands))) if attrs or spec.attrs else {}
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
    call = CallKey(spec, operands, attrs)
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


class CallKey:
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
        return isinstance(other, CallKey) and self.key == other.key


def _typed(value: Any) -> Any:
    return tuple(map(_typed, value)) if type(value) is tuple else (type(value), value)


def _infer(call: CallKey) -> Type | ValueError:
    """The type of a call, or why it has none."""
    spec, operands = call.spec, call.operands
    compares = _only_compares_sizes(spec)
    small = _with_small_sizes(call) if compares else None
    if small is not None and isinstance(told := _infer_cached(small[0]), TensorType):
        return _resized(told, small[1])
    types = tuple([None if is_number(operand) else operand for operand in operands])
    try:
        attrs = _own_attrs(spec, call.attrs, types)  # type: ignore[arg-type]
        if spec.name in packed.DEFINITIONS and all(isinstance(operand, TensorType) for operand in operands):
            return packed.DEFINITIONS[spec.name](_Types(), *operands, **attrs)  # type: ignore[no-any-return]
        if has_symbols(operands) or has_symbols(attrs):
            return _with_carried_sizes(spec, operands, attrs) or _infer_symbolic(spec, operands, attrs)
        found = None
        if _is_told_by_meta(spec, operands, attrs):
            found = (_on_ones(spec, operands, attrs) if compares else None) or _on_meta(spec, operands, attrs)
        return found or _on_fakes(spec, operands, attrs)
    except ValueError as error:
        return error


def _only_compares_sizes(spec: OpSpec) -> bool:
    """True for an operator that computes element by element: to it, sizes only matter by which are equal, which one,
    and which none. An attribute of a user's operator may be a size, too."""
    if spec.name == "nn.bias_add":
        return True
    return Trait.ELEMENT_WISE in spec.traits and (type(spec) is OpSpec or not spec.attrs)


def _with_small_sizes(call: CallKey) -> tuple[CallKey, dict[int, Any]] | None:
    """A call with small numbers for the sizes, other ones for other sizes, known or not, and the sizes by these;
    ``None`` where they are such numbers. So calls on weights of all sizes are one."""
    if not all(is_number(operand) or isinstance(operand, TensorType) for operand in call.operands):
        return None
    sizes: dict[Any, None] = dict.fromkeys(size for operand in _tensors(call.operands) for size in operand.shape)
    if 0 in sizes:
        return None
    sizes.pop(1, None)
    small = dict(zip(sizes, range(2, 2 + len(sizes))))
    if all(size == number for size, number in small.items()):
        return None
    operands = tuple([_resized(each, small) if isinstance(each, TensorType) else each for each in call.operands])
    return CallKey(call.spec, operands, call.attrs), {number: size for size, number in small.items()}


def _with_carried_sizes(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call whose symbolic sizes are carried to the result: that for a number, with the sizes in its
    place; ``None`` if they are of any other account."""
    if spec.carried is None:
        return None
    data, *others = operands
    if not isinstance(data, TensorType) or has_symbols((*others, dict(attrs))):
        return None
    carried = spec.carried(attrs, len(data.shape))
    sizes = {axis: size for axis, size in enumerate(data.shape) if isinstance(size, SymDim)}
    if not sizes.keys() <= carried.keys():
        return None
    plain = TensorType(tuple([_SMALL if axis in sizes else size for axis, size in enumerate(data.shape)]), data.dtype)
    found = _infer_cached(CallKey(spec, (plain, *others), attrs))
    if not isinstance(found, TensorType):
        return None
    shape = list(found.shape)
    for axis, size in sizes.items():
        shape[carried[axis]] = size
    return TensorType(tuple(shape), found.dtype)


class _Types:
    """The calculus of types."""

    def __call__(self, op: str, *operands: TensorType, **attrs: Any) -> Type | None:
        return infer(packed.PARTS[op], operands, attrs)

    def shape(self, value: TensorType) -> tuple[Any, ...]:
        return value.shape


def _resized(type: TensorType, sizes: Mapping[Any, int]) -> TensorType:
    return TensorType(tuple([sizes.get(size, size) for size in type.shape]), type.dtype)


_infer_cached: Callable[[CallKey], Type | ValueError] = lru_cache(maxsize=8192)(_infer)


_CHECKED_BY_FAKES: Final = re.compile(r"nn\.attention|nn\.conv\dd_transpose")
"""The operators of which the device ``meta`` takes operands of wrong sizes: kernels, biases and masks."""


def _is_told_by_meta(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> bool:
    """True if the device ``meta`` takes no call that fake tensors refuse: it does not compare dtypes everywhere, nor
    the groups of a convolution with its channels, nor empty kernels, and was not compared with them where the meaning
    is a user's."""
    if type(spec) is not OpSpec or attrs.get("groups", 1) != 1 or _CHECKED_BY_FAKES.fullmatch(spec.name):
        return False
    tensors = list(_tensors(operands))
    return len({each.dtype for each in tensors}) <= 1 and not any(0 in each.shape for each in tensors)


def _tensors(operands: tuple[Operand, ...]) -> Iterator[TensorType]:
    for operand in operands:
        if isinstance(operand, TupleType):
            yield from _tensors(operand.fields)
        elif isinstance(operand, TensorType):
            yield operand


def _on_ones(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call by a run on small tensors with data, on which torch's own kernels take a tenth of the time of
    the functions in Python that it has for those without; ``None`` for large ones, for others than floats, of which
    kernels take what fake tensors refuse, and if that fails."""
    import torch

    tensors = list(_tensors(operands))
    shapes: list[Any] = [each.shape for each in tensors]
    if sum(map(math.prod, shapes)) > _MOST_ELEMENTS:
        return None
    if not all(getattr(torch, each.dtype).is_floating_point for each in tensors):
        return None
    try:
        return _type_by_run(torch.device("cpu"), lambda value: value, spec, operands, attrs, torch.ones)
    except ValueError:
        return None


def _on_meta(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call by a run on torch's device ``meta``, which is ten times as fast as fake tensors; ``None`` if
    that fails."""
    import torch

    try:
        return _type_by_run(torch.device("meta"), lambda value: value, spec, operands, attrs, torch.empty)
    except ValueError:
        return None


def _on_fakes(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type:
    """The type of a call by a run on fake tensors, which tell why a call is ill-typed."""
    return _type_by_run(fake_mode(), lambda value: value, spec, operands, attrs, empty_fake)


def _infer_symbolic(spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Type:
    """The type of a call with symbolic sizes, which has to be the same for all sizes."""
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run(sizes: SymbolSizes) -> Type:
        with enable_python_dispatcher():  # without it, torch before 2.13 multiplies no symbolic matrices
            return _type_by_run(
                FakeTensorMode(shape_env=sizes.env), sizes.concrete, spec, operands, attrs, torch.empty
            )

    return whatever_sizes(spec.name, run, operands, attrs)


def _type_by_run(
    mode: Any, concrete: Callable[[Any], Any], spec: OpSpec, operands: tuple[Operand, ...], attrs: Mapping[str, Any],
    make: Callable[..., Any],
) -> Type:  # fmt: skip
    """The type of a call by a run on tensors that ``make`` makes, with sizes made by ``concrete``."""
    import torch

    def made(operand: Any) -> Any:
        if isinstance(operand, TupleType):
            return tuple(map(made, operand.fields))
        if isinstance(operand, TensorType):
            return make(concrete(operand.shape), dtype=getattr(torch, operand.dtype))
        return operand

    try:
        with mode, torch.no_grad(), torch._C._DisableAutocast(), quiet():
            found = type_of(_run(torch, spec, tuple(map(made, operands)), concrete(dict(attrs))))
    except Exception as error:
        if is_exhaustion(error):
            raise
        # Whatever else torch's kernels raise, the call is ill-typed; the first line has the reason.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{spec.name}: {reason}") from None
    if found is None:
        raise ValueError(f"{spec.name}: the result is not a tensor")
    return found


class _FakeModes(threading.local):
    """The fake modes of a thread, by whether they take tensors with data, too."""

    def __init__(self) -> None:
        self.known: dict[bool, Any] = {}


_FAKE_MODES: Final = _FakeModes()


def fake_mode(*, lenient: bool = False) -> Any:
    """The fake mode of this thread for runs with known sizes, the results of which are kept here: torch's own cache is
    off, because a key of it takes longer than a run. ``lenient``: it takes tensors with data among the others."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = _FAKE_MODES.known.get(lenient)
    if mode is None:
        mode = _FAKE_MODES.known[lenient] = FakeTensorMode(allow_non_fake_inputs=lenient)
        mode.cache_enabled = False
    return mode


def empty_fake(shape: Sequence[int], *, dtype: Any) -> Any:
    """A tensor as ``torch.empty`` makes it in the fake mode that is on, of the CPU, in a tenth of the time."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._mode_utils import no_dispatch

    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    with no_dispatch():
        return FakeTensor(mode, torch.empty(shape, dtype=dtype, device="meta"), torch.device("cpu"))


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
    try:
        full = spec.complete(spec.own(attrs), types)
    except KeyError as error:
        raise ValueError(f"{spec.name} has no attribute {error.args[0]!r}") from None
    return spec.own(full)


def _run(torch: Any, spec: OpSpec, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    result = spec.meaning(torch, *operands, **attrs)
    return tuple(result) if spec.fields else result


def type_of(value: Any) -> Type | None:
    """The type of a tensor or a tuple of tensors; ``None`` for anything else."""
    if isinstance(value, (tuple, list)):
        return TupleType(tuple(map(type_of, value)))
    if not hasattr(value, "dtype"):
        return None
    return TensorType.of(value)
