"""The lowering of canonical calls to native ones whose values have types, as ONNX and Relax have them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from gsl.front.tree import compose
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import Operand, infer
from gsl.spec.normalise import is_number

Lower = Callable[..., Any]
"""``writer(w, *operands, **attrs)`` with a Lowering ``w``, and canonical attributes without the derived ones."""


class LoweringTarget(Protocol):
    """The program into which calls are written."""

    def type_of(self, value: Any, /) -> Type | None:
        """The type of a native value, ``None`` where its shape or dtype is not known."""


LoweringT = TypeVar("LoweringT", bound=LoweringTarget)


class Lowering(Generic[LoweringT]):
    """The writing of one canonical call: its type, the types of native values, and other calls as parts of it.

    A front end adds the means to make native calls.
    """

    framework: ClassVar[str]
    """Its name in messages."""

    def __init__(self, writers: Mapping[str, Lower], target: LoweringT, result: Type) -> None:
        self.writers = writers
        self.target = target
        self.result = result

    @abstractmethod
    def permute(self, value: Any, axes: Sequence[int]) -> Any:
        """The axes in another order."""

    @abstractmethod
    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        """A tensor filled with a number."""

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.shape

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.dtype

    def type_of(self, value: Any) -> TensorType:
        """The type of a value that is a tensor. ValueError where it is not known."""
        found = self.target.type_of(value)
        if not isinstance(found, TensorType):
            raise ValueError(f"expected a tensor of known type, found {found}")
        return found

    def shape_of(self, value: Any) -> tuple[Dim, ...]:
        return self.type_of(value).shape

    def sizes_of(self, value: Any) -> tuple[int, ...]:
        """The shape of a tensor all of whose sizes are known. ValueError for another one."""
        return known(self.shape_of(value))

    def rank_of(self, value: Any) -> int:
        return self.type_of(value).ndim

    def dtype_of(self, value: Any) -> str:
        return self.type_of(value).dtype

    def layout(self, value: Any, source: str, target: str) -> Any:
        """A tensor of one layout in another one of the same letters."""
        return self.permute(value, [source.index(letter) for letter in target])

    def transposed(self, value: Any) -> Any:
        """A tensor with its last two axes exchanged."""
        rank = self.rank_of(value)
        return self.permute(value, [*range(rank - 2), rank - 1, rank - 2])

    def affine(self, shape: Sequence[Dim], gamma: Any, beta: Any, center: bool, scale: bool) -> tuple[Any, Any]:
        """Gamma and beta of a normalisation, of that shape, also where there is none."""
        if gamma is None or not scale:
            gamma = self.full(1, shape, self.dtype)
        if beta is None or not center:
            beta = self.full(0, shape, self.dtype)
        return gamma, beta

    def write(self, op: str, *operands: Any, **attrs: Any) -> Any:
        """Another canonical call as part of this one."""
        return lower(type(self), self.writers, op, attrs, operands, self.target)


def lower(
    kind: type[Lowering[LoweringT]], writers: Mapping[str, Lower], op: str, attrs: Mapping[str, Any],
    operands: Sequence[Any], target: LoweringT,
) -> Any:  # fmt: skip
    """The native value of a canonical call, of just the type that its declaration gives it.

    ValueError with the reason where the framework can't say it.
    """
    spec = TABLE[op]
    types = [type_or_number(operand, target) for operand in operands[: len(spec.operands)]]
    result = infer(spec, types, attrs)
    if result is None:
        raise ValueError(f"{op}: the types of the operands have to be known, found {', '.join(map(str, types))}")
    full = spec.complete(spec.own(attrs), tuple([None if is_number(t) else t for t in types]))  # type: ignore[misc]
    own = spec.own(full)
    try:
        if op in writers:
            value = writers[op](kind(writers, target, result), *operands, **own)
        else:
            value = compose(
                op, own, operands, lambda op, attrs, parts, _: lower(kind, writers, op, attrs, parts, target),
                target.type_of,
            )  # fmt: skip
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(f"{op}:") else f"{op}: {error}") from None
    found = type_or_number(value, target)
    if found != result:
        raise ValueError(f"{op}: {kind.framework} gives it the type {found}, not {result}")
    return value


def type_or_number(operand: Any, target: LoweringTarget) -> Operand:
    """The type of an operand, or the number that it is."""
    if is_number(operand):
        value: Operand = operand
        return value
    if isinstance(operand, (tuple, list)):
        return TupleType(tuple([target.type_of(field) for field in operand]))
    return target.type_of(operand)


def known(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are all numbers. ValueError for others."""
    if any(isinstance(size, SymDim) for size in shape):
        raise ValueError(f"the sizes have to be known, found {tuple(shape)}")
    return tuple([int(size) for size in shape])  # type: ignore[arg-type]
