"""Nodes of an instance in the making, some of whose properties are decided, and the types of calls: those of
:mod:`gsl.spec.meaning`, found by a run on real tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NoReturn, cast

from gsl.errors import EvaluationError
from gsl.graph import Node, Op, TensorType, TupleType, Type
from gsl.graph.node import CONST, GETITEM, INPUT, PARAM, TUPLE
from gsl.spec import TABLE, Trait, meaning
from gsl.spec.meaning import CallKey
from gsl.spec.normalise import is_number
from gsl.verify.choices import Dead


class _Unknown:
    """A size that is not decided yet. A term that depends on it has no value."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> NoReturn:
        raise EvaluationError("a size is not decided yet")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = __abs__ = __index__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        self._refuse()

    def __ne__(self, other: object) -> bool:
        self._refuse()

    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()


def is_decided(value: Any) -> bool:
    """False for a size that is not decided yet, and for a shape with one."""
    return all(map(is_decided, value)) if isinstance(value, tuple) else value is not UNKNOWN


DraftSizes = tuple["int | None", ...]
"""The sizes of a shape, ``None`` where any will do."""


@dataclass(frozen=True)
class Goal:
    """The wanted type of a node; ``None`` where anything will do."""

    shape: DraftSizes | None = None
    dtype: str | None = None
    ndim: int | None = None

    @property
    def rank(self) -> int | None:
        return self.ndim if self.shape is None else len(self.shape)

    def sizes(self, rank: int) -> list[int | None]:
        """The sizes for a rank. Dead where another rank is wanted."""
        if self.rank is not None and self.rank != rank:
            raise Dead(f"rank {rank} where {self.rank} is wanted")
        return [None] * rank if self.shape is None else list(self.shape)

    def with_dtype(self, dtype: str | None) -> Goal:
        return Goal(self.shape, dtype, self.ndim)

    def and_shape(self, shape: Sequence[int | None]) -> Goal:
        """With sizes that are wanted, too. Dead where they contradict."""
        if self.rank is not None and self.rank != len(shape):
            raise Dead(f"rank {len(shape)} where {self.rank} is wanted")
        merged = tuple([meet(a, b) for a, b in zip(self.sizes(len(shape)), shape)])
        return Goal(merged, self.dtype, None)


ANY = Goal()


def meet(first: Any, second: Any) -> Any:
    """The common part of two wanted values, where ``None`` is anything. Dead where the two differ."""
    if first is None or second is None or first == second:
        return second if first is None else first
    raise Dead(f"{second} where {first} is wanted")


RANK_KEEPING = frozenset(
    ("matmul", "nn.softmax", "full_like", *(n for n, s in TABLE.items() if Trait.ELEMENT_WISE in s.traits))
)
"""The operators whose operands have the rank of the result, or are broadcast to it."""


class NodeDraft:
    """A node of an instance in the making. Reads like a node: a property that is not decided yet has no value."""

    __slots__ = (
        "attrs", "extern", "field_goals", "kinds", "name", "number", "op", "operands", "patterns", "positive",
        "same_as", "sizes", "solved", "solving", "type", "wants_dtype", "wants_ndim",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"#{number}"
        self.op: Op | None = None
        """The operator or kind; ``None`` of a leaf whose kind is open."""
        self.operands: list[NodeDraft | None] = []
        self.attrs: dict[str, Any] = {}
        self.kinds = frozenset((INPUT, PARAM, CONST))
        """The kinds that a leaf may have."""
        self.patterns: list[Any] = []
        self.type: Type | None = None
        self.sizes: list[int | None] | None = None
        """The sizes that are decided before the type is."""
        self.wants_dtype: str | None = None
        self.wants_ndim: int | None = None
        self.solved = False
        self.solving = False
        self.field_goals: dict[int, Goal] = {}
        self.extern = False
        """True if the node is to be used outside of the match."""
        self.positive = False
        """True if the value is to be positive, if it is a literal."""
        self.same_as: NodeDraft | None = None

    @property
    def is_leaf(self) -> bool:
        return self.op is None or self.op in (INPUT, PARAM, CONST)

    @property
    def shape(self) -> tuple[Any, ...] | None:
        if isinstance(self.type, TensorType):
            return self.type.shape
        if self.sizes is None:
            return None
        return tuple([UNKNOWN if size is None else size for size in self.sizes])

    @property
    def dtype(self) -> str | None:
        return self.type.dtype if isinstance(self.type, TensorType) else self.wants_dtype

    @property
    def ndim(self) -> int | None:
        if isinstance(self.type, TensorType):
            return self.type.ndim
        if self.sizes is not None:
            return len(self.sizes)
        if self.wants_ndim is None and self.op in RANK_KEEPING:
            ranks = [operand.tensor.ndim for operand in self.operands if operand is not None and operand.solved]
            return max(ranks) if len(ranks) == len(self.operands) else None
        return self.wants_ndim

    @property
    def tensor(self) -> TensorType:
        """The type of a solved tensor."""
        if not isinstance(self.type, TensorType):
            raise Dead(f"{self!r} is no tensor")
        return self.type

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a solved tensor."""
        return self.tensor.shape  # type: ignore[return-value]

    @property
    def fields(self) -> tuple[Type | None, ...]:
        """The types of the fields of a solved tuple."""
        if not isinstance(self.type, TupleType):
            raise Dead(f"{self!r} is no tuple")
        return self.type.fields

    def operand(self, index: int) -> NodeDraft:
        found = self.operands[index]
        assert found is not None
        return found

    def state(self) -> dict[str, Any]:
        """All that is known of it, for :meth:`restore`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.copy() if isinstance(value, (list, dict)) else value for name, value in values.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what was decided since."""
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.op or 'leaf'}>"


# ---------------------------------------------------------------- types of calls


MOST_ELEMENTS = 4096
"""No tensor of an instance has more elements."""
_MOST = 2**16
"""No tensor that a rewrite makes of it has more."""
_DIVISIONS = ("floor_divide", "floor_mod", "mod")
"""Operators that have no values where an operand is zero."""
Known = TensorType | TupleType | bool | int | float | None


def known_of(node: Any) -> Known:
    """The known demands about an operand: its type, or the number that it is."""
    value: Any = node.attrs.get("value") if node.op == CONST else None
    return cast(Known, value if is_number(value) else node.type)


def infer(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call of an instance; ValueError if it is ill-typed. Graphs of instances are made with it."""
    if op == TUPLE:
        return TupleType(tuple([operand.type for operand in operands]))
    if op == GETITEM:
        whole, index = operands[0].type, attrs["index"]
        if not isinstance(whole, TupleType) or not -len(whole.fields) <= index < len(whole.fields):
            raise ValueError(f"{whole} has no field {index}")
        field: Type | None = whole.fields[index]
        return field
    return type_of_call(str(op), tuple(map(known_of, operands)), attrs)


def type_of_call(op: str, operands: tuple[Known, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a canonical call. ValueError if it is ill-typed."""
    try:
        found = _cached(CallKey(TABLE[op], operands, attrs))
    except TypeError:  # an attribute that can't be a key
        return meaning.infer(TABLE[op], operands, attrs)
    if isinstance(found, ValueError):
        raise ValueError(*found.args)
    return found


@lru_cache(maxsize=16384)
def _cached(call: CallKey) -> Type | ValueError | None:
    import torch

    spec = call.spec
    make = torch.ones if spec.name in _DIVISIONS else torch.zeros
    try:
        with torch.no_grad(), _without_onednn(torch):
            operands = [_tensor(torch, known, make) for known in call.operands]
            return meaning.type_of(meaning.evaluate(spec, operands, call.attrs))
    except Exception as refusal:
        if "not implemented" not in str(refusal):
            return ValueError(str(refusal).partition("\n")[0])
        try:  # what has no kernel of that dtype may still be well-typed
            return meaning.infer(spec, call.operands, call.attrs)
        except ValueError as error:
            return error


@contextmanager
def _without_onednn(torch: Any) -> Iterator[None]:
    """Run torch's own kernels: on some processors, oneDNN ends the process at a padded convolution in float16."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def _tensor(torch: Any, known: Known, make: Any) -> Any:
    if isinstance(known, TupleType):
        return tuple([_tensor(torch, field, make) for field in known.fields])
    if isinstance(known, TensorType):
        if prod(known.shape) > _MOST:  # type: ignore[operator]
            raise ValueError(f"{known} is too large")
        return make(known.shape, dtype=getattr(torch, known.dtype))
    return known
